"""Smena: background work on the PostgreSQL you already have. Nothing is lost, and nothing silently happens twice."""

from smena.app import Smena
from smena.current import CurrentJob, current_job
from smena.errors import InvalidArguments, OutcomeUnknown, Permanent, SmenaError, Transient
from smena.handle import JobHandle, JobUnsuccessful
from smena.jobs import Cancel, Enqueued, JobState, Snooze
from smena.retry import Retry
from smena.tasks import Task

__all__ = [
    "Cancel",
    "CurrentJob",
    "Enqueued",
    "InvalidArguments",
    "JobHandle",
    "JobState",
    "JobUnsuccessful",
    "OutcomeUnknown",
    "Permanent",
    "Retry",
    "Smena",
    "SmenaError",
    "Snooze",
    "Task",
    "Transient",
    "current_job",
]
