"""Runs the stored jobs that are ready: here, now, one at a time, in the order of priority and position.

The statements are the worker's own, and so are its judgements. What differs: there is one slot and nothing works in the
background, so each step is taken when its turn comes; the lease is long, because nobody renews it while a handler is
being debugged.

On a connection of its own every statement commits by itself, and no transaction is open while a handler runs. With
`conn` all of it happens in the caller's transaction, before whose end nobody else sees any of it; a handler that spoils
the transaction with a failed statement is undone back to its savepoint.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Generator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from uuid import UUID

from smena import telemetry
from smena._drivers import arun, run
from smena._drivers.choose import sqlstate
from smena._ops.operation import Operation, Query, Rows
from smena._ops.workers import lock_key
from smena._worker import outcome
from smena._worker.claimed import Claim, ClaimedJob
from smena._worker.incarnation import new_incarnation, worker_name
from smena._worker.results import DoneRange
from smena.current import CurrentJob, Shift
from smena.database import aconnect, connect
from smena.errors import ConfigurationError, CopiedDatabase, InvalidArguments
from smena.jobs import JobState
from smena.testing.calls import Call, PrivateLoop, Steps, adrive, attempt, drive
from smena.testing.drained import Drained, FailedJob

if TYPE_CHECKING:
    from smena.app import Smena
    from smena.tasks import Task

T = TypeVar("T")

Taken = Generator[Query | Call, Any, T]

_LEASE = 3600.0
_PAGE = 500
_LONG_AGO = datetime(1900, 1, 1, tzinfo=UTC)
# A test does not outlive a crash of its server, and need not wait for the disk.
_OPTIONS = (
    "-c plan_cache_mode=force_generic_plan -c default_transaction_isolation=read\\ committed -c jit=off "
    "-c synchronous_commit=off"
)
_NO_TRANSACTION = "25P01"
_SPOILED = "25P02"


def drain(
    app: Smena,
    queues: str | Iterable[str] | None = None,
    *,
    conn: Any = None,
    until: Literal["empty", "done"] = "empty",
    with_scheduled: bool = False,
    lifespan: bool = True,
) -> Drained:
    """Runs the jobs of these queues, or all, until nothing is ready or due. Jobs that fail raise nothing.

    conn            the connection in whose transaction the jobs are, when that is still open
    until           'done': what failed is tried again without its pause, until it has an outcome
    with_scheduled  jobs that are scheduled when it begins are due at once
    lifespan        the app's lifespan is entered for as long as it lasts, as in a worker

    >>> assert drain(app, "payments").done == 1  # doctest: +SKIP
    """
    drained = _Drain(app, queues, until, with_scheduled=with_scheduled, conn=conn)
    with ExitStack() as stack:
        loop = stack.enter_context(PrivateLoop(app.lifespan if lifespan else None))
        if conn is None:
            conn = stack.enter_context(connect(app.database.dsn, **_connection_options()))

        def ask(query: Query) -> Rows:
            return run(_once(query), conn, app.database.schema)

        return drive(drained.steps(), ask, loop)


async def adrain(
    app: Smena,
    queues: str | Iterable[str] | None = None,
    *,
    conn: Any = None,
    until: Literal["empty", "done"] = "empty",
    with_scheduled: bool = False,
    lifespan: bool = True,
) -> Drained:
    """`drain` for an async test: async handlers are awaited, `conn` is an async connection."""
    drained = _Drain(app, queues, until, with_scheduled=with_scheduled, conn=conn)
    async with AsyncExitStack() as stack:
        if lifespan and app.lifespan is not None:
            await stack.enter_async_context(app.lifespan())
        if conn is None:
            dsn = await asyncio.to_thread(lambda: app.database.dsn)
            conn = await stack.enter_async_context(await aconnect(dsn, **_connection_options()))

        async def ask(query: Query) -> Rows:
            return await arun(_once(query), conn, app.database.schema)

        return await adrive(drained.steps(), ask)


def _connection_options() -> dict[str, Any]:
    return {"autocommit": True, "options": _OPTIONS, "application_name": "smena drain"}


def _once(query: Query) -> Operation[Rows]:
    return (yield query)


class _Lane(NamedTuple):
    id: int
    queue: str
    priority: int
    kind: str
    floor: int | None
    straggler: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class _Last:
    """The last attempt of a job."""

    job: ClaimedJob
    row: Mapping[str, Any] | None
    error: BaseException | None = None


class _Drain:
    """One drain, as steps."""

    def __init__(
        self,
        app: Smena,
        queues: str | Iterable[str] | None,
        until: str,
        *,
        with_scheduled: bool,
        conn: Any,
    ) -> None:
        if until not in ("empty", "done"):
            raise ConfigurationError(f"until={until!r}: it is 'empty' or 'done'")
        if app.database.stand_in is not None:
            raise ConfigurationError(
                "this app is inline: its jobs ran when they were enqueued, and there is nothing to drain; "
                "use smena.testing.manual(app) in a test that drains"
            )
        self._app = app
        self._queues = None if queues is None else [queues] if isinstance(queues, str) else list(queues)
        self._until = until
        self._with_scheduled = with_scheduled
        self._conn = conn
        self._savepoints = conn is not None
        self._incarnation = new_incarnation()
        self._name = worker_name()
        self._shift = Shift()
        self._installation = UUID(int=0)
        self._floors: dict[int, int] = {}
        self._last: dict[int, _Last] = {}

    def steps(self) -> Steps[Drained]:
        id, at_home = (yield Query("workers/installation"))[0]
        if not at_home:
            raise CopiedDatabase(
                "this database was copied or restored from another one, and draining it would run that one's jobs: "
                "if that is meant, run `smena db adopt --yes` first"
            )
        self._installation = UUID(id)
        yield self._register()
        try:
            if self._with_scheduled:
                yield self._make_due(queues=self._queues)
            ran = yield from self._until_empty()
            while ran and self._until == "done" and (retrying := self._retrying()):
                yield self._make_due(ids=retrying)
                ran = yield from self._until_empty()
        except BaseException:
            try:
                yield from self._leave()
            except Exception as error:  # what interrupted the drain says more
                telemetry.emit("database.lost", part="drain", error=str(error).strip())
            raise
        yield from self._leave()
        return (yield from self._count())

    # Coming and going

    def _register(self) -> Query:
        return Query(
            "workers/register",
            {
                "incarnation": self._incarnation,
                "name": self._name,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "release": None,
                "queues": self._queues or [],
                "concurrency": 1,
                "lease": _LEASE,
            },
        )

    def _leave(self) -> Taken[None]:
        """Hands back what was claimed and not run, and takes this worker off the list."""
        values = {"incarnation": self._incarnation, "known": [], "worker_name": self._name}
        yield Query("workers/retire", values)
        yield Query("workers/forget_claims", {"dead": self._incarnation})
        yield Query("workers/forget", {"dead": self._incarnation})

    def _make_due(self, *, queues: list[str] | None = None, ids: list[int] | None = None) -> Query:
        return Query("testing/make_due", {"queues": _document(queues), "ids": _document(ids)})

    def _retrying(self) -> list[int]:
        return [id for id, last in self._last.items() if last.row is not None and last.row["outcome"] == "retried"]

    # Finding work

    def _until_empty(self) -> Taken[bool]:
        """False when there was nothing to run."""
        ran_any = False
        while True:
            yield from self._tend()
            lanes = yield from self._lanes()
            self._floors = {lane.id: lane.floor or 0 for lane in lanes}
            ran = False
            while (lane := (yield from self._ready(lanes))) is not None:
                job = yield from self._claim(lane)
                if job is None:
                    lanes.remove(lane)  # somebody else has its jobs
                    continue
                ran = True
                yield from self._work(job)
            if not ran:
                return ran_any
            ran_any = True

    def _tend(self) -> Taken[None]:
        """What the duties would have done by now: due jobs and the first of idle order keys become ready."""
        while (yield Query("duties/promote", {"floor": _LONG_AGO, "page": _PAGE}))[0][0] >= _PAGE:
            pass
        while (yield Query("duties/activate", {"page": _PAGE}))[0][0] >= _PAGE:
            pass

    def _lanes(self) -> Taken[list[_Lane]]:
        values = {"incarnation": self._incarnation, "incarnations": [], "maintain": False, "queues": self._queues}
        seen = json.loads((yield Query("workers/beat", values))[0][0])
        lanes = [lane for lane in map(_Lane._make, seen["lanes"]) if not lane.paused]
        return sorted(lanes, key=lambda lane: (-lane.priority, lane.kind != "r", lane.id))

    def _ready(self, lanes: list[_Lane]) -> Taken[_Lane | None]:
        values = {"lanes": [lane.id for lane in lanes], "floors": [self._floors[lane.id] for lane in lanes]}
        ready = {row[0] for row in (yield Query("jobs/peek", values))}
        return next((lane for lane in lanes if lane.id in ready), None)

    def _claim(self, lane: _Lane) -> Taken[ClaimedJob | None]:
        rows = yield self._exchange(lane=lane.id, floor=self._floors[lane.id], n=1)
        if rows[0][1] is None:
            return None
        _, pos, id, attempt, most, task, args, created, rest = rows[0]
        # What commits late below this position is found in the next round, which begins at the published floor.
        self._floors[lane.id] = pos
        claim = Claim(self._incarnation, lane.id, pos, 1)
        return ClaimedJob(claim, pos, id, attempt, most, task, args, created, json.loads(rest) if rest else None)

    def _exchange(self, **values: Any) -> Query:
        nothing = {"done_lane": 0, "lo": 1, "hi": 0, "map": b"", "results": None, "lane": 0, "floor": 0, "n": 0}
        ours = {"incarnation": self._incarnation, **lock_key(self._incarnation)}
        return Query("jobs/claim", {**nothing, **ours, **values})

    # Running

    def _work(self, job: ClaimedJob) -> Taken[None]:
        task = self._app.tasks.get(job.task)
        if task is None:
            yield from self._settle(job, outcome.unfit(job, "UNKNOWN_TASK", f"no task {job.task!r} in this app"))
            return
        if job.rest is not None and job.rest["expired"]:
            yield from self._settle(job, outcome.cancelled(job, "expired before it was started", back=True))
            return
        place = {"lane": job.claim.lane, "pos": job.pos, "incarnation": self._incarnation}
        text = job.args
        if text is None:
            text = (yield Query("jobs/load_args", place))[0][0]
        try:
            args, kwargs = task.arguments.decode(text)
        except InvalidArguments as error:
            yield from self._settle(job, outcome.unfit(job, "BAD_ARGUMENTS", str(error)))
            return
        if job.rest is not None and not job.rest["repeats"]:
            yield Query("jobs/mark_started", place)
        yield from self._attempt(job, Call(task, args, kwargs, self._current(job, task)))

    def _current(self, job: ClaimedJob, task: Task[..., Any]) -> CurrentJob:
        deadline = None if task.timeout is None else self._shift.now() + task.timeout
        return CurrentJob(job, self._installation, self._shift, deadline)

    def _attempt(self, job: ClaimedJob, call: Call) -> Taken[None]:
        yield from self._set_savepoint()
        try:
            ended = yield from attempt(job, call)
        except BaseException:
            yield from self._undo_spoiled()
            yield from self._settle(job, outcome.interrupted(job))
            raise
        yield from self._undo_spoiled()
        if ended.row is None:
            yield from self._finish(job, ended.result)
        else:
            yield from self._settle(job, ended.row, ended.error)

    def _set_savepoint(self) -> Taken[None]:
        if self._savepoints:
            try:
                yield Query("testing/savepoint")
            except Exception as error:
                if sqlstate(error) != _NO_TRANSACTION:
                    raise
                self._savepoints = False  # the connection commits each statement by itself

    def _undo_spoiled(self) -> Taken[None]:
        if not self._savepoints:
            return
        if getattr(self._conn, "needs_rollback", False):
            # Django refuses every statement from now on, that of the way back included.
            self._conn.set_rollback(False)
            yield Query("testing/undo")
            return
        try:
            yield Query("testing/usable")
        except Exception as error:
            if sqlstate(error) != _SPOILED:
                raise
            yield Query("testing/undo")

    def _finish(self, job: ClaimedJob, result: str | None) -> Taken[None]:
        if job.ordered:
            row = f'[{{"lane":{job.claim.lane},"pos":{job.pos},"result":{result or "null"}}}]'
            written = bool((yield Query("jobs/finish_ordered", {"rows": row, "incarnation": self._incarnation})))
        else:
            done = DoneRange([(job, result)])
            values = {"lo": done.lo, "hi": done.hi, "map": done.map, "results": done.results}
            written = bool((yield self._exchange(done_lane=done.lane, **values))[0][0])
        if written:
            telemetry.emit("jobs.finished", count=1)
        self._note(job, None, None, written)

    def _settle(self, job: ClaimedJob, row: dict[str, Any], error: BaseException | None = None) -> Taken[None]:
        document = json.dumps([{"lane": job.claim.lane, "pos": job.pos, **row}], ensure_ascii=False)
        values = {"rows": document, "incarnation": self._incarnation, "worker_name": self._name}
        written = bool((yield Query("jobs/settle", values)))
        self._note(job, row, error, written)

    def _note(self, job: ClaimedJob, row: dict[str, Any] | None, error: BaseException | None, written: bool) -> None:
        if written:
            self._last[job.id] = _Last(job, row, error)
        else:
            telemetry.emit("job.lost_token", job=job.id, task=job.task, token=job.pos)

    # Counting

    def _count(self) -> Taken[Drained]:
        rows = yield Query("testing/jobs", {"tasks": None, "ids": _document(list(self._last))})
        states: dict[str, int] = {}
        failures = []
        for text, _ in rows:
            shown = json.loads(text)
            state = JobState(shown["state"])
            states[state] = states.get(state, 0) + 1
            last = self._last[shown["id"]]
            if last.row is not None and last.row["kind"] is not None:
                failures.append(_failed(last.job, state, last.row, last.error))
        counted = ("done", "failed", "unknown", "cancelled", "scheduled")
        return Drained(**{name: states.get(name, 0) for name in counted}, failures=tuple(failures))


def _failed(job: ClaimedJob, state: JobState, row: Mapping[str, Any], error: BaseException | None) -> FailedJob:
    return FailedJob(job.id, job.task, state, row["kind"], job.attempt, job.max_attempts, row["detail"] or {}, error)


def _document(values: list[Any] | None) -> str | None:
    return None if values is None else json.dumps(values)
