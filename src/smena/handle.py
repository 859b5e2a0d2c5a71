"""A handle on a stored job."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

from smena._ops import people
from smena._ops.operation import Operation
from smena.database import Database
from smena.errors import ConfigurationError, NotFound
from smena.jobs import JobState

_SETTLED = {JobState.DONE, JobState.FAILED, JobState.UNKNOWN, JobState.CANCELLED}


class JobHandle:
    """One job, by its id. Nothing is read before it is asked for."""

    def __init__(self, id: int, database: Database) -> None:
        if isinstance(id, bool) or not isinstance(id, int):
            raise ConfigurationError(f"job {id!r}: a job's id is a whole number")
        self.id = id
        self._database = database

    def read(self) -> dict[str, Any]:
        """The row of `smena.jobs`, as a dictionary. Raises NotFound."""
        return self._found(self._database.run(self._show, whole=False))

    async def aread(self) -> dict[str, Any]:
        """`read` for an async program."""
        return self._found(await self._database.arun(self._show, whole=False))

    @property
    def state(self) -> JobState:
        """The job's present state."""
        return JobState(self.read()["state"])

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until the job has an outcome and returns its result.

        timeout: seconds; None waits without end. Raises TimeoutError, and JobUnsuccessful when it ended otherwise than
        done.
        """
        for pause in _pauses(timeout):
            row = self.read()
            if row["state"] in _SETTLED:
                return _result(row)
            if pause is None:
                break
            time.sleep(pause)
        raise TimeoutError(f"job {self.id} is {row['state']} after {timeout:g} s")

    async def await_result(self, timeout: float | None = None) -> Any:
        """`wait` for an async program."""
        for pause in _pauses(timeout):
            row = await self.aread()
            if row["state"] in _SETTLED:
                return _result(row)
            if pause is None:
                break
            await asyncio.sleep(pause)
        raise TimeoutError(f"job {self.id} is {row['state']} after {timeout:g} s")

    def _show(self) -> Operation[dict[str, Any] | None]:
        # What bigint does not hold is no job's id, and PostgreSQL would not even look.
        return people.show(self.id if 0 < self.id < 2**63 else 0)

    def _found(self, row: dict[str, Any] | None) -> dict[str, Any]:
        if row is None:
            raise NotFound(f"no job {self.id}: it was deleted, its retention is over, or its transaction rolled back")
        return row


def _pauses(timeout: float | None) -> Iterator[float | None]:
    """How long to wait between two looks, ever longer; None after the last one."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    pause = 0.01
    while (left := until - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, 0.5)
    yield None


class JobUnsuccessful(Exception):
    """The job that was waited for ended as failed, unknown or cancelled. `job` is its row."""

    def __init__(self, job: dict[str, Any]) -> None:
        detail = job.get("failure_detail") or {}
        words = detail.get("message") if isinstance(detail, dict) else None
        super().__init__(
            f"job {job['id']} ({job['task']}) is {job['state']}"
            + (f": {job['failure_kind']}" if job["failure_kind"] else "")
            + (f": {words}" if words else "")
        )
        self.job = job


def _result(row: dict[str, Any]) -> Any:
    if row["state"] != JobState.DONE:
        raise JobUnsuccessful(row)
    return row["result"]
