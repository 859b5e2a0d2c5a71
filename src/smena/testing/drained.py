"""What a drain did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from smena.jobs import JobState


@dataclass(frozen=True, slots=True, repr=False)
class FailedJob:
    """A job whose last attempt failed. `state` is failed or unknown, or scheduled while it waits for its retry.

    `error` is what the handler raised, None where it was not called; `detail` is what the store keeps about it.
    """

    id: int
    task: str
    state: JobState
    kind: str
    attempt: int
    max_attempts: int
    detail: Mapping[str, Any]
    error: BaseException | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        words = ": ".join(str(self.detail[key]) for key in ("type", "message") if self.detail.get(key))
        return (
            f"<job {self.id} {self.task} is {self.state} after attempt {self.attempt} of {self.max_attempts}, "
            f"{self.kind}: {words}>"
        )


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of the jobs that ran, each counted once, by the state in which the drain left it.

    scheduled  waits: for its retry, because it snoozed, or for code that knows its task
    failures   the jobs whose last attempt failed, those that wait for a retry included
    """

    done: int = 0
    failed: int = 0
    unknown: int = 0
    cancelled: int = 0
    scheduled: int = 0
    failures: tuple[FailedJob, ...] = ()
