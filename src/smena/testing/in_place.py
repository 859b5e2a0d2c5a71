"""Inline mode: what stands where the database stood, and runs each job as soon as it is enqueued.

It answers the few statements that enqueueing and reading a job need, and refuses all others. There is no queue: a job
is run to its end before `enqueue` returns, unless a handler enqueued it. Then it waits until that handler has returned:
a handler sees neither the failures nor the effects of jobs that it enqueues, as it would not see them with workers.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from smena._ops.operation import Operation, Query, Rows
from smena._worker.claimed import Claim, ClaimedJob
from smena.current import CurrentJob, Shift
from smena.errors import ConfigurationError
from smena.idempotency import idempotency_key
from smena.testing.calls import Call, PrivateLoop, adrive, attempt, drive

if TYPE_CHECKING:
    from smena.app import Smena
    from smena.tasks import Task

T = TypeVar("T")

Calls = Generator[Call, Any, T]

# A task that enqueues itself goes on for ever with workers, which may be meant; a test would never end.
_MOST = 1_000

# One sequence for all: a token that user code kept from an earlier test is never larger than a new one.
_numbers = itertools.count(1)


@dataclass(slots=True)
class _Job:
    id: int
    task: str
    args: str
    queue: str
    priority: int
    max_attempts: int
    repeats: bool
    created_at: datetime
    run_at: datetime
    after_failed: str
    order_key: str | None
    unique_key: str | None
    idempotency_key: str | None
    headers: dict[str, str] | None
    state: str = "ready"
    attempt: int = 0
    snoozes: int = 0
    result: str | None = None
    failure: dict[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def created_us(self) -> int:
        return (self.created_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@dataclass(slots=True)
class _Hold:
    """Who holds a unique key."""

    job: _Job
    mode: str
    until: float

    @property
    def is_stale(self) -> bool:
        match self.mode:
            case "forever":
                return False
            case "seconds":
                return time.monotonic() >= self.until
            case "waiting":
                return self.job.state != "ready"
            case _:
                return self.job.state not in ("ready", "running")


class _Waiting:
    """Jobs that wait until the handler that is running now has returned."""

    def __init__(self, jobs: list[_Job]) -> None:
        self.jobs = deque(jobs)
        self.open = True


_waiting: ContextVar[_Waiting | None] = ContextVar("smena_testing_waiting", default=None)


class InPlace:
    """Stands in for the database of one app."""

    def __init__(self, app: Smena) -> None:
        self._app = app
        self._jobs: dict[int, _Job] = {}
        self._holds: dict[tuple[str, str], _Hold] = {}
        self._installation: UUID = uuid4()
        self._shift = Shift()

    def run(self, operation: Operation[T]) -> T:
        """Runs an operation, and then the jobs that it enqueued."""
        with PrivateLoop() as loop:
            return drive(self._steps(operation), _no_query, loop)

    async def arun(self, operation: Operation[T]) -> T:
        """The same for an async caller."""
        return await adrive(self._steps(operation), _no_query)

    def _steps(self, operation: Operation[T]) -> Generator[Query | Call, Any, T]:
        new: list[_Job] = []
        try:
            query = next(operation)
            while True:
                rows = yield from self._answer(query, new)
                query = operation.send(rows)
        except StopIteration as stop:
            answer: T = stop.value
        waiting = _waiting.get()
        if waiting is not None and waiting.open:
            waiting.jobs.extend(new)
        elif new:
            yield from self._work_off(_Waiting(new))
        return answer

    # Answering

    def _answer(self, query: Query, new: list[_Job]) -> Calls[Rows]:
        values = query.parameters
        match query.name:
            case "jobs/enqueue":
                made = [self._made(values, row) for row in json.loads(values["rows"])]
                new += made
                return [(job.id,) for job in made]
            case "jobs/enqueue_unique":
                return self._enqueue_unique(values, new)
            case "jobs/unique_holds":
                holds = ((key, self._holds.get((values["queue"], key))) for key in json.loads(values["keys"]))
                return [(key, hold.job.id, 0, hold.is_stale) for key, hold in holds if hold is not None]
            case "jobs/drop_stale_holds":
                for hold in json.loads(values["holds"]):
                    self._holds.pop((values["queue"], hold["u"]), None)
                return []
            case "people/show":
                job = self._jobs.get(values["id"])
                if job is None:
                    return []
                yield from self._work_ahead(job)
                return [(json.dumps(self._shown(job)),)]
            case "testing/jobs":
                tasks = json.loads(values["tasks"]) if values["tasks"] is not None else None
                found = [job for job in self._jobs.values() if tasks is None or job.task in tasks]
                return [(json.dumps(self._shown(job)), job.args) for job in found]
            case _:
                raise ConfigurationError(
                    f"inline mode has no database, and cannot do what {query.name} does: "
                    "use smena.testing.manual(app) in this test"
                )

    def _enqueue_unique(self, values: Any, new: list[_Job]) -> Rows:
        rows: list[tuple[int, int | None]] = []
        for row in json.loads(values["rows"]):
            key = (values["queue"], row["u"]) if "u" in row else None
            if key in self._holds:
                rows.append((row["n"], None))
                continue
            job = self._made(values, row)
            if key is not None:
                self._holds[key] = _Hold(job, values["mode"], time.monotonic() + (values["hold_for"] or 0.0))
            new.append(job)
            rows.append((row["n"], job.id))
        return rows

    def _made(self, values: Any, row: dict[str, Any]) -> _Job:
        now = datetime.now(UTC)
        at = values["run_at"]
        job = _Job(
            id=next(_numbers),
            task=values["task"],
            args=json.dumps(row["a"], ensure_ascii=False),
            queue=values["queue"],
            priority=values["priority"],
            max_attempts=values["max_attempts"],
            repeats=values["repeats"],
            created_at=now,
            run_at=now + timedelta(seconds=values["run_in"]) if at is None else datetime.fromisoformat(at),
            after_failed=values["after_failed"],
            order_key=row.get("o"),
            unique_key=row.get("u"),
            idempotency_key=row.get("i"),
            headers=None if values["headers"] is None else json.loads(values["headers"]),
        )
        self._jobs[job.id] = job
        return job

    def _shown(self, job: _Job) -> dict[str, Any]:
        """The job as `smena.jobs` would show it."""
        key = idempotency_key(self._installation, job.id, job.created_us) if job.idempotency_key is None else None
        return {
            "id": job.id,
            "queue": job.queue,
            "task": job.task,
            "state": job.state,
            "priority": job.priority,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "attempts_total": job.attempt,
            "crashes": 0,
            "snoozes": job.snoozes,
            "requeues": 0,
            "run_at": job.run_at.isoformat(),
            "planned_at": None,
            "created_at": job.created_at.isoformat(),
            "started_at": None if job.started_at is None else job.started_at.isoformat(),
            "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
            "claimed_until": None,
            "worker": None,
            "args": json.loads(job.args),
            "headers": job.headers,
            "result": None if job.result is None else json.loads(job.result),
            "order_key": job.order_key,
            "unique_key": job.unique_key,
            "idempotency_key": key or job.idempotency_key,
            "schedule": None,
            "failure_kind": job.failure.get("kind"),
            "failure_side": job.failure.get("side"),
            "failure_detail": job.failure.get("detail"),
            "failed_at": job.finished_at.isoformat() if job.finished_at and job.state == "failed" else None,
        }

    # Running

    def _work_off(self, waiting: _Waiting) -> Calls[None]:
        """Runs jobs and what their handlers enqueue, one after the other. Raises the first failure at the end."""
        token = _waiting.set(waiting)
        failures: list[tuple[_Job, BaseException]] = []
        ran = 0
        try:
            while waiting.jobs:
                job = waiting.jobs.popleft()
                ran += 1
                if ran > _MOST:
                    raise ConfigurationError(
                        f"one enqueue led to more than {_MOST:,} jobs, the last of task {job.task}: where a task "
                        "enqueues itself, use smena.testing.manual(app) and drain"
                    )
                error = yield from self._work(job)
                if error is not None:
                    failures.append((job, error))
        finally:
            waiting.open = False
            _waiting.reset(token)
        if failures:
            first = failures[0][1]
            for job, error in failures[1:]:
                first.add_note(f"Then job {job.id} of task {job.task} failed too: {type(error).__name__}: {error}")
            raise first

    def _work_ahead(self, job: _Job) -> Calls[None]:
        """Runs a job that waits and is looked at now: whoever waits for it would wait for ever."""
        waiting = _waiting.get()
        if job.state == "ready" and waiting is not None and job in waiting.jobs:
            waiting.jobs.remove(job)
            yield from self._work(job)

    def _work(self, job: _Job) -> Calls[BaseException | None]:
        """All attempts of a job; returns what the last one raised."""
        task = self._app.tasks.get(job.task)
        if task is None:
            raise ConfigurationError(f"no task {job.task!r} in the app that is inline here")
        args, kwargs = task.arguments.decode(job.args)
        job.state = "running"
        while True:
            job.attempt += 1
            job.started_at = datetime.now(UTC)
            claimed = self._claimed(job)
            ended = yield from attempt(claimed, Call(task, args, kwargs, self._current(claimed, task)))
            row = ended.row
            if row is None:
                job.state, job.result, job.failure = "done", ended.result, {}
                break
            if row["back"]:
                job.attempt -= 1
            if row["kind"] is not None:
                job.failure = row
            if row["outcome"] == "retried":
                continue
            if row["outcome"] == "snoozed":
                job.snoozes += 1
                job.state = "scheduled"
                job.run_at = datetime.now(UTC) + timedelta(seconds=row["delay"])
                return None
            job.state = row["outcome"]
            break
        job.finished_at = datetime.now(UTC)
        return ended.error

    def _claimed(self, job: _Job) -> ClaimedJob:
        token = next(_numbers)
        rest = {
            "order_key": job.order_key,
            "queue": job.queue,
            "headers": job.headers,
            "idempotency_key": job.idempotency_key,
            "generation": None,
            "repeats": job.repeats,
            "expired": False,
            "after_failed": job.after_failed,
            "unknown_for": None,
        }
        claim = Claim(0, 0, token, 1)
        return ClaimedJob(claim, token, job.id, job.attempt, job.max_attempts, job.task, job.args, job.created_us, rest)

    def _current(self, claimed: ClaimedJob, task: Task[..., Any]) -> CurrentJob:
        deadline = None if task.timeout is None else self._shift.now() + task.timeout
        return CurrentJob(claimed, self._installation, self._shift, deadline)


def _no_query(query: Query) -> Any:
    raise AssertionError(f"{query.name} reached the driver")
