"""Real worker processes, and the table in which their handlers leave traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

HERE = Path(__file__).parent
LEASE = 2.0


class Process:
    """One worker process."""

    def __init__(self, dsn: str, folder: Path, options: list[str], effects: str) -> None:
        self.log = folder / f"worker-{time.monotonic_ns()}.log"
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        ours = {
            "SMENA_DSN": dsn,
            "SMENA_APP": "shop:app",
            "EFFECTS_DSN": effects,
            "PYTHONPATH": path,
            "NOTES": str(folder / "notes"),
            "LET_GO": str(folder / "let-go"),
        }
        environment = {**os.environ, **ours}
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "smena", "worker", "--lease", str(LEASE), *options],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def exit_code(self, timeout: float = 40) -> int:
        return self.child.wait(timeout)


class Shop:
    """A database with workers on it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.processes: list[Process] = []

    def make_effects(self) -> None:
        self.query(
            "create table effects (job bigint, token bigint primary key, attempt int, pid int, "
            "began timestamptz not null default clock_timestamp(), ended timestamptz)"
        )

    def smena(self, *words: str) -> int:
        """Runs one command of the command line on this database and returns its exit code."""
        environment = {**os.environ, "SMENA_DSN": self.dsn}
        command = [sys.executable, "-m", "smena", *words]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=60).returncode

    def worker(self, *options: str, dsn: str | None = None) -> Process:
        """Starts a worker. With a `dsn` it comes over another way; its handlers' traces do not."""
        process = Process(dsn or self.dsn, self.folder, list(options), self.dsn)
        self.processes.append(process)
        return process

    def query(self, sql: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, *values: Any) -> Any:
        return self.query(sql, *values)[0][0]

    def states(self) -> dict[str, int]:
        return dict(self.query("select state, count(*) from smena.jobs group by 1"))

    def until(self, condition: Callable[[], Any], seconds: float = 60, what: str = "") -> Any:
        """Waits for a condition, and says what was there instead."""
        until = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > until:
                logs = "\n".join(process.text()[-1500:] for process in self.processes[-3:])
                pytest.fail(
                    f"not within {seconds} s: {what or condition}; jobs: {self.states()}\n{self._open()}\n{logs}"
                )
            time.sleep(0.05)
        return found

    def _open(self) -> list[Any]:
        """What is under way, and under whom."""
        jobs = "select pos, id, state, attempt, worker, task from smena.job where state in ('r', 'l', 'm', 's', 'b')"
        return [
            *self.query(f"{jobs} limit 20"),
            *self.query("select * from smena.workers"),
            *self.query("select * from smena.claims limit 20"),
        ]

    def let_go(self) -> None:
        """The handlers of `held` may end."""
        (self.folder / "let-go").touch()

    def read_notes(self) -> int:
        """Enters what the handlers noted in the file; returns how many attempts that are."""
        notes = self.folder / "notes"
        with psycopg.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.execute("truncate effects")
            with cursor.copy("copy effects (job, token, attempt, pid) from stdin (delimiter ' ')") as copy:
                copy.write(notes.read_bytes() if notes.exists() else b"")
            return cursor.execute("select count(*) from effects").fetchone()[0]  # type: ignore[index]

    def until_begun(self, more: int) -> None:
        """Waits until so many more attempts have begun."""
        before = self.value("select count(*) from effects")
        self.until(lambda: self.value("select count(*) from effects") >= before + more, what=f"{more} more attempts")

    def until_there(self, workers: int) -> None:
        """Waits until so many workers have started."""
        self.until(lambda: self.value("select count(*) from smena.workers") == workers, what=f"{workers} workers")

    def exits(self) -> list[int | None]:
        """How the workers ended that were started; None for those that live."""
        return [process.child.poll() for process in self.processes]

    def until_working(self, workers: int) -> None:
        """Waits until so many workers are there, each of which may judge the others."""
        witnesses = "select count(*) from smena.workers w where not closed and smena.is_witness(w)"
        self.until(lambda: self.value(witnesses) == workers, what=f"{workers} workers have renewed for a lease term")

    def until_ended(self, seconds: float = 60) -> None:
        """Waits until each job has an outcome."""
        open = "select count(*) from smena.jobs where state in ('ready', 'running', 'scheduled', 'blocked')"
        self.until(lambda: self.value(open) == 0, seconds, "each job has an outcome")

    def close(self) -> None:
        for process in self.processes:
            if process.child.poll() is None:
                process.signal(signal.SIGCONT)
                process.kill()


@contextmanager
def open_shop(dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop on a migrated, empty database; its app is importable as `shop`, and enqueues there."""
    monkeypatch.setenv("SMENA_DSN", dsn)
    monkeypatch.syspath_prepend(str(HERE))
    shop = Shop(dsn, folder)
    shop.make_effects()
    try:
        yield shop
    finally:
        shop.close()
        module = sys.modules.pop("shop", None)
        if module is not None:
            module.app.close()


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop on the tests' server."""
    with open_shop(database, tmp_path, monkeypatch) as shop:
        yield shop


def fill(module: Any, jobs: int) -> int:
    """Enqueues jobs of all sorts; returns how many."""
    count = len(module.work.enqueue_many([(0.01,)] * jobs))
    count += len(module.work_in_thread.enqueue_many([(0.01,)] * (jobs // 4)))
    count += len(module.fails_first.enqueue_many([(0.01,)] * (jobs // 4)))
    count += len(module.work.using(run_in=2).enqueue_many([(0.01,)] * (jobs // 4)))
    count += len(module.ordered.enqueue_many([(f"key-{n % 7}", 0.01) for n in range(jobs // 4)]))
    made = [module.work.using(unique_key=f"u-{n % 50}").enqueue(0.01).created for n in range(jobs // 4)]
    return count + sum(made)
