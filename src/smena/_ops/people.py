"""What people ask of the store, and do to it: read a job, cancel, requeue, delete, pause a queue."""

from __future__ import annotations

import json
from typing import Any

from smena._ops.operation import Operation, Query
from smena.errors import NotFound, Refused


def show(id: int) -> Operation[dict[str, Any] | None]:
    """The row of `smena.jobs` with this id."""
    rows = yield Query("people/show", {"id": id})
    return json.loads(rows[0][0]) if rows else None


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
