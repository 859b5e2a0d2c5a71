"""Type-checked, never run: the values that users build and receive."""

from __future__ import annotations

from typing import assert_type

from smena.errors import JobFailure, OutcomeUnknown, Permanent, SmenaError, Transient
from smena.jobs import Cancel, Enqueued, JobState, Snooze
from smena.retry import Retry

assert_type(Retry(attempts=3, first=1, cap=60.5, jitter=0).pause(2), float)
assert_type(Enqueued(1).id, int)
assert_type(Enqueued(1, created=False).created, bool)
assert_type(Snooze(60).seconds, float)
assert_type(Cancel("no longer wanted").reason, str)
assert_type(JobState("ready"), JobState)

failures: list[JobFailure] = [
    Permanent("VALIDATION", "amount is 0.00"),
    Transient(retry_after=30),
    OutcomeUnknown(probe_key="payment-17"),
]
assert_type(failures[0].kind, str)
errors: list[SmenaError] = [*failures]

Retry(attempts="3")  # type: ignore[arg-type]
Snooze("60")  # type: ignore[arg-type]
Transient(retry_after="soon")  # type: ignore[arg-type]
