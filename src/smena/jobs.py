"""A job as people and programs see it: its states, what enqueueing returns, what a handler may return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """The states of a job, as `smena.jobs.state` shows them."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What `enqueue` returns: the job's id, and whether this call made it.

    `created` is False when a job with the same unique key was there already; `id` is then that job's.
    """

    id: int
    created: bool = True


@dataclass(frozen=True, slots=True)
class Snooze:
    """Returned by a handler: run me again after `seconds`; no attempt is spent.

    >>> Snooze(60)
    Snooze(seconds=60)
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= 366 * 86400:
            raise ValueError(f"Snooze takes 0 to 31622400 seconds, not {self.seconds!r}")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Returned by a handler: this work is no longer wanted; the job ends as `cancelled`."""

    reason: str = ""
