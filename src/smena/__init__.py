"""Smena: background work on the PostgreSQL you already have. Nothing is lost, and nothing silently happens twice.

Names are imported when they are first used: pytest imports this package wherever it is installed, for the sake of
`smena.testing.plugin`, and should not wait for a database driver. PYTEST_DONT_REWRITE: no assert is here, and without
this word pytest warns of a program that imported smena before pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "app": ("Smena",),
    "current": ("CurrentJob", "current_job"),
    "errors": ("InvalidArguments", "OutcomeUnknown", "Permanent", "SmenaError", "Transient"),
    "handle": ("JobHandle", "JobUnsuccessful"),
    "jobs": ("Cancel", "Enqueued", "JobState", "Snooze"),
    "retry": ("Retry",),
    "tasks": ("Task",),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return import_module(f"{__name__}.{name}")
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
