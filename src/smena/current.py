"""The job that the running code belongs to: `current_job()`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from smena.idempotency import idempotency_key

_current: ContextVar[CurrentJob | None] = ContextVar("smena_job", default=None)


class CurrentJob:
    """What a handler may know of its own job.

    id               the job's number, the same for ever
    token            a number that only grows over the attempts of a job: `… where fence <= token` in your own SQL
                     keeps a paused earlier attempt from writing
    attempt          attempts spent in this cycle, this one included; the first is 1
    max_attempts     how many there will be at most
    idempotency_key  the key to give to the other side; the same on each attempt
    headers          what the enqueuer put there
    stopping         the worker is shutting down: come to a point where you can return `Snooze(0)`
    cancelled        somebody asked to cancel this job
    lost             the worker lost its lease: another attempt may run elsewhere, and no result counts any more
    """

    __slots__ = ("_deadline", "_installation", "_job", "_shift", "cancelled", "lost")

    def __init__(self, job: Any, installation: UUID, shift: Shift, deadline: float | None) -> None:
        self._job = job
        self._installation = installation
        self._shift = shift
        self._deadline = deadline
        self.cancelled = False
        self.lost = False

    @property
    def id(self) -> int:
        return int(self._job.id)

    @property
    def token(self) -> int:
        return int(self._job.pos)

    @property
    def attempt(self) -> int:
        return int(self._job.attempt)

    @property
    def max_attempts(self) -> int:
        return int(self._job.max_attempts)

    @property
    def idempotency_key(self) -> str:
        rest = self._job.rest
        if rest and rest.get("idempotency_key") is not None:
            return str(rest["idempotency_key"])
        generation = (rest.get("generation") or 0) if rest else 0
        return idempotency_key(self._installation, self._job.id, self._job.created_us, generation)

    @property
    def headers(self) -> Mapping[str, str]:
        rest = self._job.rest
        return (rest.get("headers") or {}) if rest else {}

    @property
    def stopping(self) -> bool:
        return self._shift.stopping

    def remaining(self) -> float | None:
        """Seconds until this attempt is timed out; None without a time-out. Never negative."""
        return None if self._deadline is None else max(0.0, self._deadline - self._shift.now())

    def __repr__(self) -> str:
        return f"<job {self.id} attempt {self.attempt} of {self.max_attempts}: {json.dumps(self._job.task)}>"


class Shift:
    """What all jobs of a process share: whether it is stopping, and its monotonic clock."""

    def __init__(self) -> None:
        import time

        self.stopping = False
        self.now = time.monotonic


def current_job() -> CurrentJob:
    """The job that the calling code runs for. Raises LookupError outside a handler.

    >>> async def charge(purchase: int) -> None:
    ...     await provider.charge(purchase, key=current_job().idempotency_key)
    """
    job = _current.get()
    if job is None:
        raise LookupError("no job is running here: current_job() is for code called by a task's handler")
    return job
