"""Enqueue, and what people do to a job: cancel, requeue, delete. Each written once, for every driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from smena._ops.operation import Operation, Query
from smena.jobs import Enqueued

# One document of this many rows is as fast per row as larger ones, and bounds what one statement holds.
CHUNK_ROWS = 5_000
CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one `enqueue` call have in common. Durations in seconds."""

    task: str
    queue: str
    priority: int
    max_attempts: int
    repeats: bool = True
    run_in: float = 0.0
    run_at: str | None = None
    expires_in: float | None = None
    headers: str | None = None
    after_failed: str = "n"
    unique_mode: str = "active"
    unique_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """One job to be stored: its arguments as JSON text, and its keys."""

    args: str
    order_key: str | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None

    def row(self, n: int) -> str:
        """The row as JSON text. The arguments are JSON already and are not encoded twice."""
        parts = [f'{{"n":{n},"a":{self.args}']
        for letter, key in (("o", self.order_key), ("i", self.idempotency_key), ("u", self.unique_key)):
            if key is not None:
                parts.append(f'"{letter}":{json.dumps(key)}')
        return ",".join(parts) + "}"


def enqueue(order: Order, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
    """Stores jobs; what comes back is in the order of `jobs`."""
    places = list(range(len(jobs)))
    if len(list(_chunks(jobs))) > 1 and any(job.unique_key is not None for job in jobs):
        # A statement takes its keys in sorted order. Over several statements the jobs themselves are sorted, so that
        # two calls never wait for each other in a circle.
        places.sort(key=lambda n: jobs[n].unique_key or "")
    enqueued: list[Enqueued] = []
    for chunk in _chunks([jobs[n] for n in places]):
        store = _store_unique if any(job.unique_key is not None for job in chunk) else _store
        enqueued += yield from store(order, chunk)
    answers = dict(zip(places, enqueued, strict=True))
    return [answers[n] for n in range(len(jobs))]


def _chunks(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    chunk: list[NewJob] = []
    size = 0
    for job in jobs:
        if chunk and (len(chunk) >= CHUNK_ROWS or size + len(job.args) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += len(job.args)
    if chunk:
        yield chunk


def _parameters(order: Order, rows: str) -> dict[str, Any]:
    return {
        "queue": order.queue,
        "priority": order.priority,
        "run_at": order.run_at,
        "run_in": order.run_in,
        "rows": rows,
        "task": order.task,
        "max_attempts": order.max_attempts,
        "repeats": order.repeats,
        "expires_in": order.expires_in,
        "after_failed": order.after_failed,
        "headers": order.headers,
    }


def _document(jobs: Sequence[tuple[int, NewJob]]) -> str:
    return "[" + ",".join(job.row(n) for n, job in jobs) + "]"


def _store(order: Order, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
    query = Query("jobs/enqueue", _parameters(order, _document(list(enumerate(jobs)))))
    rows = yield query
    if not rows:
        yield from _make_lane(order)
        rows = yield query
    # Ids are drawn in the order of the document, so sorting them restores it.
    return [Enqueued(id) for id in sorted(row[0] for row in rows)]


def _store_unique(order: Order, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
    """Tries the keys; takes over stale holds; a key held by an active job gives that job's id.

    Every round either stores a job, finds an active holder, or drops a stale hold; a round in which a holder vanished
    between two statements is simply repeated.
    """
    answers: dict[int, Enqueued] = {}
    pending = list(enumerate(jobs))
    while pending:
        parameters = _parameters(order, _document(pending))
        parameters |= {"mode": order.unique_mode, "hold_for": order.unique_seconds}
        rows = yield Query("jobs/enqueue_unique", parameters)
        if not rows:
            yield from _make_lane(order)
            continue
        for n, id in rows:
            if id is not None:
                answers[n] = Enqueued(id)
        pending = [(n, job) for n, job in pending if n not in answers]
        if not pending:
            break
        keys = sorted({job.unique_key for _, job in pending if job.unique_key is not None})
        holds = yield Query("jobs/unique_holds", {"queue": order.queue, "keys": json.dumps(keys)})
        stale = [{"u": key, "j": id, "v": version} for key, id, version, is_stale in holds if is_stale]
        holder = {key: id for key, id, _, is_stale in holds if not is_stale}
        for n, job in pending:
            if job.unique_key in holder:
                answers[n] = Enqueued(holder[job.unique_key], created=False)
        pending = [(n, job) for n, job in pending if n not in answers]
        if stale:
            yield Query("jobs/drop_stale_holds", {"queue": order.queue, "holds": json.dumps(stale)})
    return [answers[n] for n in range(len(jobs))]


def _make_lane(order: Order) -> Operation[None]:
    yield Query("jobs/make_lane", {"queue": order.queue, "priority": order.priority})
