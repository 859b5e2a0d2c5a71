"""Lists of jobs, newest id first, read by index however much history there is.

Each state has its own way in: the parked states an index by queue and state, ready jobs their lanes above the floor,
running jobs the claim ledger. Finished jobs, and lists without a state, are walked by id from the newest, a window at a
time. Every way returns the newest jobs below an id that it has, so the newest of all ways together are the page.

This is the one place where filters meet statements. A filter is a parameter, never a piece of SQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from smena._ops.operation import Operation, Query, Row, Rows
from smena.jobs import JobState

NEWEST = 2**63 - 1
WINDOW = 10_000
READY_CAP = 10_000

_PARKED = {JobState.SCHEDULED, JobState.BLOCKED, JobState.FAILED, JobState.UNKNOWN, JobState.CANCELLED}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are meant; an empty tuple admits all."""

    states: tuple[JobState, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.states or self.queues or self.tasks or self.kinds)


class Found(NamedTuple):
    """A job in a list: enough to count it and to find it again."""

    id: int
    queue: str
    state: str
    task: str


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs as `smena.jobs` shows them, as JSON texts; `now` is the database's present; `next` is where to go on."""

    jobs: list[str]
    now: datetime
    next: int | None


def page(filter: Filter, *, limit: int, before: int = NEWEST) -> Operation[Page]:
    """The newest `limit` jobs with an id below `before`."""
    found = yield from find(filter, limit=limit + 1, before=before)
    jobs, now = yield from read([job.id for job in found[:limit]])
    return Page(jobs, now, found[limit - 1].id if len(found) > limit else None)


def read(ids: Sequence[int]) -> Operation[tuple[list[str], datetime]]:
    """These jobs as JSON texts, in this order, without those that are gone; and the database's present."""
    yield Query("people/plan_for_reading")
    rows = yield Query("people/read_many", {"ids": json.dumps(list(ids))})
    return [row[0] for row in rows], (yield from clock())


def clock() -> Operation[datetime]:
    """The database's present."""
    rows = yield Query("people/clock")
    return datetime.fromisoformat(rows[0][0])


def locate(ids: Sequence[int]) -> Operation[list[Found]]:
    """Those of these jobs that exist, in this order."""
    yield Query("people/plan_for_reading")
    rows = yield Query("people/locate", {"ids": json.dumps(list(ids))})
    return [_found(row) for row in rows]


def find(filter: Filter, *, limit: int, before: int = NEWEST) -> Operation[list[Found]]:
    """The newest `limit` jobs below an id that fit."""
    yield Query("people/plan_for_reading")
    states = set(filter.states or JobState)
    if JobState.DONE in states:
        return (yield from _walk(filter, limit, before))
    parameters = {**_parameters(filter), "before": before, "most": limit}
    found: list[Found] = []
    if parked := sorted(states & _PARKED):
        rows = yield Query("people/list_parked", {**parameters, "states": _names(parked)})
        found += map(_found, rows)
    if JobState.RUNNING in states:
        rows = yield Query("people/list_running", parameters)
        found += map(_found, rows)
    if JobState.READY in states:
        rows = yield Query("people/list_ready", {**parameters, "cap": READY_CAP})
        if rows[0][0]:
            # A backlog this long is not sorted for a page. Walking by id meets it soon, because it is most of the log.
            found += yield from _walk(replace(filter, states=(JobState.READY,)), limit, before)
        else:
            found += _after(1, rows)
    # A job may change its state between two statements and then be met twice.
    newest = {job.id: job for job in found}
    return sorted(newest.values(), reverse=True)[:limit]


def _walk(filter: Filter, limit: int, before: int) -> Operation[list[Found]]:
    parameters = {**_parameters(filter), "states": _names(filter.states) if filter.states else None}
    window = WINDOW if filter else limit
    found: list[Found] = []
    while len(found) < limit:
        values = {"before": before, "window": window, "most": limit - len(found)}
        rows = yield Query("people/list_newest", {**parameters, **values})
        found += _after(2, rows)
        seen, reached = rows[0][:2]
        if seen < window:
            break
        before = reached
    return found


def _parameters(filter: Filter) -> dict[str, Any]:
    return {name: _names(getattr(filter, name)) for name in ("queues", "tasks", "kinds")}


def _names(names: Sequence[str]) -> str | None:
    return json.dumps([str(name) for name in names]) if names else None


def _after(columns: int, rows: Rows) -> list[Found]:
    """The jobs of an answer whose first columns are about the look itself; one row without a job says there is none."""
    return [_found(row[columns:]) for row in rows if row[columns] is not None]


def _found(row: Row) -> Found:
    return Found(row[0], row[1], row[2], row[3])
