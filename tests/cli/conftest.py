"""The command line in the test's own process, and a store to put jobs into."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from smena.cli import main

LETTERS = {
    "scheduled": "s",
    "blocked": "b",
    "ready": "r",
    "running": "l",
    "done": "d",
    "failed": "f",
    "unknown": "u",
    "cancelled": "c",
}


class Smena:
    """Runs `smena …` and returns what came of it."""

    def __init__(self, dsn: str) -> None:
        self.environment: dict[str, str | None] = {"SMENA_DSN": dsn, "COLUMNS": None, "NO_COLOR": None}

    def __call__(self, *args: object, code: int = 0, input: str | None = None, **environment: str) -> Result:
        words = [str(arg) for arg in args]
        result = CliRunner().invoke(main, words, input=input, env={**self.environment, **environment})
        assert code == result.exit_code, result.output
        return result

    def json(self, *args: object, **more: Any) -> Any:
        return json.loads(self(*args, "--json", **more).stdout)

    def ids(self, *args: object, **more: Any) -> list[int]:
        """The ids that `job list` shows."""
        return [item["id"] for item in self.json("job", "list", *args, **more)["items"]]


class Stock:
    """Puts jobs into the store in any state, past the worker that would bring them there."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def sql(self, query: Any, *values: Any) -> list[Any]:
        cursor = self.connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    def one(self, query: Any, *values: Any) -> Any:
        return self.sql(query, *values)[0][0]

    def put(
        self,
        state: str,
        *,
        queue: str = "payments",
        task: str = "shop.charge",
        args: Any = None,
        priority: int = 0,
        kind: str | None = None,
        **columns: Any,
    ) -> int:
        """One job; returns its id."""
        id = self.one("select nextval('smena.pos_seq')")
        lane = self.one('select smena.lane(%s, %s, %s::"char")', queue, priority, "n")
        in_log = state in ("ready", "running", "done")
        values: dict[str, Any] = {
            "lane": lane,
            "queue": self.one("select queue from smena.lanes where id = %s", lane),
            "pos": id if in_log else -id,
            "id": id,
            "state": LETTERS[state],
            "task": task,
            "args": json.dumps({} if args is None else args),
            "attempt": 0 if state in ("scheduled", "blocked", "ready") else 1,
            "max_attempts": 5,
            "failure_kind": kind,
            "failure_side": "theirs" if kind else None,
            **columns,
        }
        if state == "running":
            values["worker"] = self.worker()
            self.sql("insert into smena.claims values (%s, %s, %s, %s)", values["worker"], lane, id, id)
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        self.sql(f"insert into smena.job ({names}) values ({marks})", *values.values())
        if state in ("done", "failed", "unknown", "cancelled"):
            self.sql("update smena.job set finished_at = clock_timestamp() where id = %s", id)
        return int(id)

    def worker(
        self, name: str = "host:1:aaaa", incarnation: int | None = None, lease: float = 30, **columns: Any
    ) -> int:
        """A worker's row; returns its incarnation."""
        incarnation = incarnation or self.one("select nextval('smena.pos_seq')") * 1_000_003
        values = {
            "incarnation": incarnation,
            "name": name,
            "host": "host",
            "pid": 1,
            "release": None,
            "queues": ["payments"],
            "concurrency": 20,
            "lease": lease,
            **columns,
        }
        marks = ", ".join(["%s"] * len(values))
        self.sql(
            f"insert into smena.workers ({', '.join(values)}, claimed_until)"
            f" values ({marks}, clock_timestamp() + make_interval(secs => %s))",
            *values.values(),
            lease,
        )
        return int(incarnation)

    def count(self) -> None:
        """Measures the counts as a worker's duty does."""
        from smena._drivers.psycopg import execute
        from smena._ops.operation import Query

        execute(self.connection, Query("duties/count", {"cap": 10_000}), "smena")

    def state(self, id: int) -> str | None:
        rows = self.sql("select state from smena.jobs where id = %s", id)
        return str(rows[0][0]) if rows else None

    def states(self, *ids: int) -> list[str | None]:
        return [self.state(id) for id in ids]


@pytest.fixture
def stock(database: str) -> Iterator[Stock]:
    """The test's store, written to in autocommit."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield Stock(connection)


@pytest.fixture
def smena(database: str, here: Path) -> Smena:
    """The command line, pointed at the test's store by its environment."""
    return Smena(database)


@pytest.fixture
def bare(here: Path) -> Smena:
    """The command line without a database."""
    return Smena("postgresql://nobody@127.0.0.1:1/none")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMENA_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Writes a module into the current folder, to be forgotten after the test; returns its name."""
    import sys

    before = set(sys.modules)
    path = list(sys.path)

    def write(name: str, text: str) -> str:
        (here / f"{name}.py").write_text(text)
        return name

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(here) in str(sys.modules[name].__file__):
            del sys.modules[name]
