"""What people ask of the store, and do to it: read a job, cancel, requeue, delete, pause a queue, adopt a store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from smena._ops.operation import Operation, Query
from smena.errors import NotFound, Refused

T = TypeVar("T")

PATIENCE = 5.0


def show(id: int) -> Operation[dict[str, Any] | None]:
    """The row of `smena.jobs` with this id."""
    rows = yield Query("people/show", {"id": id})
    return json.loads(rows[0][0]) if rows else None


def attempts(id: int, *, most: int) -> Operation[list[str]]:
    """The last attempts that did not end in done, newest first, as JSON texts."""
    rows = yield Query("people/attempts", {"id": id, "most": most})
    return [row[0] for row in rows]


def cancel(id: int, reason: str | None) -> Operation[str]:
    """Cancels a job: `cancelled`, or `requested` when it is running. Raises NotFound, Refused."""
    return (yield from _act("people/cancel", {"id": id, "reason": reason}))


def requeue(id: int, reason: str | None, *, new_key: bool = False) -> Operation[str]:
    """Starts a new cycle for a finished job. Raises NotFound, Refused."""
    return (yield from _act("people/requeue", {"id": id, "reason": reason, "new_key": new_key}))


def delete(id: int, reason: str | None) -> Operation[str]:
    """Removes a job and its history. Raises NotFound, Refused."""
    return (yield from _act("people/delete", {"id": id, "reason": reason}))


def _act(name: str, parameters: dict[str, Any]) -> Operation[str]:
    rows = yield Query(name, parameters)
    answer = str(rows[0][0])
    if answer.startswith("refused: no job"):
        raise NotFound(answer.removeprefix("refused: "))
    if answer.startswith("refused: "):
        raise Refused(answer.removeprefix("refused: "))
    return answer


def patiently(operation: Operation[T]) -> Operation[T]:
    """`operation`, in a transaction of its own, giving up when somebody else's holds a row for PATIENCE seconds."""
    yield Query("people/patience", {"seconds": PATIENCE})
    return (yield from operation)


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether the call changed anything, and the pause as it was before."""

    changed: bool
    paused_at: str | None
    paused_by: str | None
    reason: str | None


def queues() -> Operation[list[str]]:
    """Every queue with its counts and its pause, as JSON texts."""
    rows = yield Query("people/queues")
    return [row[0] for row in rows]


def pause(queue: str, reason: str | None) -> Operation[Pause]:
    """Stops claims from a queue. Raises NotFound."""
    return (yield from _set_pause("people/pause", queue, reason))


def resume(queue: str, reason: str | None) -> Operation[Pause]:
    """Lets a queue be worked again. Raises NotFound."""
    return (yield from _set_pause("people/resume", queue, reason))


def _set_pause(name: str, queue: str, reason: str | None) -> Operation[Pause]:
    rows = yield Query(name, {"queue": queue, "reason": reason})
    if not rows:
        names = [row[0] for row in (yield Query("people/queue_names"))]
        there = f"there are {', '.join(names[:10])}{' …' if len(names) > 10 else ''}" if names else "there is none yet"
        raise NotFound(f"no queue {queue!r}: {there}; a queue is made when the first job is stored in it")
    return Pause(*rows[0])


def workers() -> Operation[list[str]]:
    """The worker processes, as JSON texts."""
    rows = yield Query("people/workers")
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True)
class Home:
    """Which installation this is; where it was told to live (`was`) and where it lives (`now`)."""

    installation: str
    was: tuple[int, int]
    now: tuple[int, int]
    database: str

    @property
    def is_kept(self) -> bool:
        return self.was == self.now


def home() -> Operation[Home]:
    """Where the store lives, as system identifier and database oid."""
    id, was_system, was_oid, system, oid, database = (yield Query("people/home"))[0]
    return Home(id, (was_system, was_oid), (system, oid), database)


def adopt(reason: str | None, *, apart: bool) -> Operation[str]:
    """Tells the store that it lives here now; returns the installation's id."""
    rows = yield Query("people/adopt", {"reason": reason, "apart": apart})
    return str(rows[0][0])
