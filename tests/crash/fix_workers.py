"""Real worker processes, and the table in which their handlers leave traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

HERE = Path(__file__).parent
LEASE = 2.0


class Process:
    """One worker process."""

    def __init__(self, dsn: str, folder: Path, options: list[str]) -> None:
        self.log = folder / f"worker-{time.monotonic_ns()}.log"
        environment = {**os.environ, "SMENA_DSN": dsn, "PYTHONPATH": str(HERE), "SMENA_APP": "shop:app"}
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "smena", "worker", "--lease", str(LEASE), *options],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: int) -> None:
        os.kill(self.child.pid, number)

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
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "create table effects (job bigint, token bigint primary key, attempt int, pid int, "
                "began timestamptz not null default clock_timestamp(), ended timestamptz)"
            )

    def worker(self, *options: str) -> Process:
        process = Process(self.dsn, self.folder, list(options))
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
                pytest.fail(f"not within {seconds} s: {what or condition}; jobs: {self.states()}\n{logs}")
            time.sleep(0.05)
        return found

    def until_ended(self, seconds: float = 60) -> None:
        """Waits until each job has an outcome."""
        open = "select count(*) from smena.jobs where state in ('ready', 'running', 'scheduled', 'blocked')"
        self.until(lambda: self.value(open) == 0, seconds, "each job has an outcome")

    def close(self) -> None:
        for process in self.processes:
            if process.child.poll() is None:
                process.signal(signal.SIGCONT)
                process.kill()


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop on a fresh database; its app is importable as `shop`, and enqueues there."""
    monkeypatch.setenv("SMENA_DSN", database)
    monkeypatch.syspath_prepend(str(HERE))
    shop = Shop(database, tmp_path)
    yield shop
    shop.close()
    module = sys.modules.pop("shop", None)
    if module is not None:
        module.app.close()
