"""Handlers that do what they should not, and what a worker keeps apart in spite of them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from smena import Cancel, Permanent, Retry, Smena, Snooze, current_job, telemetry
from smena._worker.process import Worker, WorkerOptions

ONCE = Retry(attempts=1)


@pytest.fixture
def app(database: str) -> Iterator[Smena]:
    app = Smena(database, lease=2)
    yield app
    app.close()


Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def events() -> Iterator[Events]:
    seen: Events = []
    stop = telemetry.subscribe(lambda name, fields: seen.append((name, fields)))
    yield seen
    stop()


def query(app: Smena, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []


def states(app: Smena) -> dict[str, int]:
    return dict(query(app, "select state, count(*) from smena.jobs group by 1"))


def work(app: Smena, **options: Any) -> Worker:
    """Works until nothing is left, and leaves neither task nor thread nor subscriber behind."""
    subscribers, threads = len(telemetry._subscribers), set(threading.enumerate())

    async def main() -> Worker:
        worker = Worker(app, WorkerOptions(until_empty=True, **options))
        async with asyncio.timeout(60):
            await worker.run()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return worker

    worker = asyncio.run(main())
    assert subscribers == len(telemetry._subscribers)
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()
    return worker


def work_while(app: Smena, act: Callable[[Worker], Awaitable[None]], **options: Any) -> Worker:
    async def main() -> Worker:
        worker = Worker(app, WorkerOptions(**options))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await act(worker)
            worker.stop()
            await running
        return worker

    return asyncio.run(main())


async def until(condition: Callable[[], Any]) -> None:
    while not await asyncio.to_thread(condition):
        await asyncio.sleep(0.01)


# What a job leaves behind for the next


@pytest.mark.parametrize("is_async", [True, False])
def test_context_variables_of_one_job_are_not_those_of_the_next(app: Smena, is_async: bool) -> None:
    customer: contextvars.ContextVar[int] = contextvars.ContextVar("customer", default=0)
    seen: list[tuple[int, int]] = []

    def note(n: int) -> None:
        seen.append((customer.get(), current_job().id))
        customer.set(n)

    @app.task
    async def on_the_loop(n: int) -> None:
        note(n)
        await asyncio.sleep(0)
        assert n == customer.get()
        await asyncio.create_task(asyncio.sleep(0))
        assert n == await asyncio.to_thread(customer.get)
        assert current_job().id == seen[-1][1]

    @app.task
    def in_a_thread(n: int) -> None:
        note(n)

    jobs = (on_the_loop if is_async else in_a_thread).enqueue_many([(n,) for n in range(1, 20)])
    assert 0 == work(app, concurrency=1).failed
    assert [(0, job.id) for job in jobs] == sorted(seen)


def test_work_that_outlives_its_job_still_knows_whose_it_is(app: Smena) -> None:
    seen: dict[int, int] = {}
    left: set[asyncio.Task[None]] = set()

    @app.task
    async def leaves_work() -> None:
        id = current_job().id

        async def later() -> None:
            await asyncio.sleep(0.05)
            seen[id] = current_job().id

        left.add(asyncio.create_task(later()))

    async def act(worker: Worker) -> None:
        await until(lambda: states(app) == {"done": 5})
        await asyncio.gather(*left)

    leaves_work.enqueue_many([()] * 5)
    work_while(app, act, concurrency=1)
    assert 5 == len(seen)
    assert all(id == known for id, known in seen.items())


def test_a_coroutine_that_a_sync_handler_returns_is_run(app: Smena) -> None:
    """A decorator around an async function often is a plain function: its job is not done by calling it."""
    ran: list[int] = []

    async def inner(n: int) -> int:
        ran.append(current_job().attempt)
        return n

    def decorated(n: int) -> Any:
        return inner(n)

    task = app.task(name="decorated")(decorated)
    job = task.enqueue(17)
    work(app)
    assert [1] == ran
    assert 17 == app.job(job.id).wait(1)


# Time-outs


def test_a_handler_that_swallows_its_cancellation_keeps_its_result_and_harms_no_other(app: Smena) -> None:
    @app.task(timeout=0.1, retry=ONCE)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "all the same"

    @app.task
    async def fine(n: int) -> int:
        await asyncio.sleep(0)
        return n

    job = stubborn.enqueue()
    fine.enqueue_many([(n,) for n in range(50)])
    work(app, concurrency=1)
    assert {"done": 51} == states(app)
    assert "all the same" == app.job(job.id).wait(1)


def test_a_time_out_that_meets_the_return_gives_one_outcome_and_spoils_no_slot(app: Smena) -> None:
    ran: list[int] = []

    @app.task(timeout=0.1, retry=ONCE)
    async def close_to_it(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0.09 + n % 10 * 0.008)
        return n

    @app.task
    async def fine(n: int) -> None:
        await asyncio.sleep(0)

    jobs = close_to_it.enqueue_many([(n,) for n in range(120)])
    fine.enqueue_many([(n,) for n in range(120)])
    work(app, concurrency=20)
    assert sorted(ran) == list(range(120))
    rows = query(app, "select id, state, failure_kind, result, attempt from smena.jobs where task like '%%close_to_it'")
    assert {(None, True), ("TIMEOUT", False)} >= {(kind, result is not None) for _, _, kind, result, _ in rows}
    assert [1] * 120 == [attempt for *_, attempt in rows]
    assert 120 == len(jobs)
    assert {"done"} == {
        state for (state,) in query(app, "select distinct state from smena.jobs where task like '%%fine'")
    }


def test_time_outs_of_the_handlers_own_are_its_own(app: Smena) -> None:
    @app.task(timeout=30, retry=ONCE)
    async def patient(n: int) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return f"{n} gave up"
        return "never"

    @app.task(timeout=0.1, retry=ONCE)
    async def both() -> None:
        async with asyncio.timeout(0.1):
            await asyncio.sleep(60)

    patient.enqueue_many([(n,) for n in range(30)])
    both.enqueue_many([()] * 10)
    work(app, concurrency=2)
    assert {"done": 30, "failed": 10} == states(app)
    assert {"TIMEOUT", "ERROR"} >= {
        kind for (kind,) in query(app, "select failure_kind from smena.jobs where failure_kind is not null")
    }


def test_a_handler_that_cancels_itself_has_failed(app: Smena) -> None:
    @app.task(retry=ONCE)
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    @app.task(retry=ONCE)
    async def cancels_its_child() -> None:
        child = asyncio.create_task(asyncio.sleep(60))
        child.cancel()
        await child

    @app.task
    async def fine(n: int) -> None:
        await asyncio.sleep(0)

    for task in (cancels_itself, cancels_its_child):
        task.enqueue()
        fine.enqueue_many([(n,) for n in range(10)])
        worker = work(app, concurrency=1)
        assert 1 == worker.failed
    assert {"failed": 2, "done": 20} == states(app)


def test_a_handler_may_enqueue_on_the_loop_and_from_a_thread(app: Smena) -> None:
    ran: list[int] = []

    @app.task
    async def on_the_loop(n: int) -> None:
        ran.append(n)
        if n < 5:
            await in_a_thread.aenqueue(n + 1)

    @app.task
    def in_a_thread(n: int) -> None:
        ran.append(n)
        on_the_loop.enqueue(n + 1)

    on_the_loop.enqueue(0)
    work(app)
    assert [0, 1, 2, 3, 4, 5, 6] == ran
    app.close()
    assert [(0,)] == query(app, "select count(*) from pg_stat_activity where application_name = 'smena'"
                                " and datname = current_database()")  # fmt: skip


@pytest.mark.parametrize("grace", [0, 5])
def test_an_exit_in_a_task_of_the_handlers_own_gives_the_neighbours_back(app: Smena, grace: float) -> None:
    """asyncio lets SystemExit of any task end the loop; that is no failure of the jobs that ran there."""
    began = threading.Event()

    @app.task(retry=ONCE)
    async def neighbour() -> None:
        began.set()
        await asyncio.sleep(60)

    @app.task
    async def exits() -> None:
        async def inner() -> None:
            raise SystemExit(3)

        while not began.is_set():
            await asyncio.sleep(0.01)
        await asyncio.create_task(inner())

    beside, _ = neighbour.enqueue().id, exits.enqueue().id
    with pytest.raises(SystemExit):
        asyncio.run(Worker(app, WorkerOptions(grace=grace)).run())
    assert [("ready", 0)] == query(app, "select state, attempt from smena.jobs where id = %s", beside)


# Exceptions


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _group() -> BaseException:
    return BaseExceptionGroup("several", [ValueError("a"), SystemExit(3), ExceptionGroup("in", [KeyError("b")])])


@pytest.mark.parametrize(
    "make", [StopIteration, StopAsyncIteration, _group, Mute, lambda: ValueError("x" * 10_000_000), RecursionError]
)
def test_any_exception_of_a_handler_is_its_failure(app: Smena, make: Callable[[], BaseException]) -> None:
    @app.task(retry=ONCE)
    async def on_the_loop() -> None:
        raise make()

    @app.task(retry=ONCE)
    def in_a_thread() -> None:
        raise make()

    jobs = [on_the_loop.enqueue(), in_a_thread.enqueue()]
    assert 2 == work(app).failed
    for job in jobs:
        row = app.job(job.id).read()
        assert ("failed", "ERROR", "ours") == (row["state"], row["failure_kind"], row["failure_side"])
        assert len(str(row["failure_detail"])) < 30_000


# What is told


def test_every_ending_is_told_once_and_counted_as_the_store_counts(app: Smena, events: Events) -> None:
    @app.task(retry=Retry(attempts=2, first=0, jitter=0))
    async def ends(how: str) -> Any:
        match how:
            case "retry":
                raise RuntimeError(how)
            case "permanent":
                raise Permanent("VALIDATION", how)
            case "snooze":
                return Snooze(0) if current_job().token == current_job().id else None
            case "cancel":
                return Cancel("not wanted")
            case "refused":
                return object()

    @app.task(timeout=0.1, repeat=False)
    async def must_not_repeat() -> None:
        await asyncio.sleep(60)

    hows = ["done", "retry", "permanent", "snooze", "cancel", "refused"]
    jobs = {how: ends.enqueue(how).id for how in hows}
    jobs["unknown"] = must_not_repeat.enqueue().id
    query(app, "update smena.job set task = 'nobody.knows' where id = %s", ends.enqueue("unfit").id)
    jobs["expired"] = ends.using(expires_in=0).enqueue("done").id
    worker = work(app)
    told = [(name, fields.get("job")) for name, fields in events if name.startswith("job.")]
    assert sorted(told, key=str) == sorted(
        [
            ("job.retried", jobs["retry"]),
            ("job.failed", jobs["retry"]),
            ("job.failed", jobs["permanent"]),
            ("job.snoozed", jobs["snooze"]),
            ("job.cancelled", jobs["cancel"]),
            ("job.cancelled", jobs["expired"]),
            ("job.result_refused", jobs["refused"]),
            ("job.unknown", jobs["unknown"]),
            ("job.unfit", max(jobs.values()) - 1),
        ],
        key=str,
    )
    assert 3 == sum(fields["count"] for name, fields in events if name == "jobs.finished")
    assert {"done": 3, "failed": 2, "cancelled": 2, "unknown": 1, "scheduled": 1} == states(app)
    assert 3 == worker.failed
    assert ["worker.started", "worker.stopped"] == [name for name, _ in events if name.startswith("worker.")]


def test_each_attempt_that_is_not_done_has_its_row(app: Smena) -> None:
    tokens: dict[str, list[int]] = {}

    @app.task(retry=Retry(attempts=2, first=0, jitter=0))
    async def ends(how: str) -> Any:
        tokens.setdefault(how, []).append(current_job().token)
        match how:
            case "retry":
                raise RuntimeError("boom")
            case "snooze":
                return Snooze(0) if len(tokens[how]) == 1 else None
            case "cancel":
                return Cancel("not wanted")

    jobs = {how: ends.enqueue(how).id for how in ("done", "retry", "snooze", "cancel")}
    worker = work(app)
    rows = query(
        app,
        "select job_id, attempt, pos, outcome, kind, side, worker, detail->>'message', detail->>'reason',"
        " started_at <= finished_at, finished_at <= clock_timestamp() from smena.attempts order by job_id, pos",
    )
    expected = [
        (jobs["retry"], 1, tokens["retry"][0], "retried", "ERROR", "ours", worker.name, "boom", None, True, True),
        (jobs["retry"], 2, tokens["retry"][1], "failed", "ERROR", "ours", worker.name, "boom", None, True, True),
        (jobs["snooze"], 1, tokens["snooze"][0], "snoozed", None, None, worker.name, None, None, True, True),
        (jobs["cancel"], 1, tokens["cancel"][0], "cancelled", None, None, worker.name, None, "not wanted", True, True),
    ]
    assert expected == rows


# Stopping


def test_a_stop_hands_running_work_back_without_an_attempt(app: Smena, events: Events) -> None:
    began: list[int] = []

    @app.task(retry=ONCE)
    async def long() -> None:
        began.append(current_job().id)
        await asyncio.sleep(60)

    @app.task(retry=ONCE, repeat=False)
    async def must_not_repeat() -> None:
        began.append(current_job().id)
        await asyncio.sleep(60)

    returned, unsure = long.enqueue().id, must_not_repeat.enqueue().id

    async def act(worker: Worker) -> None:
        await until(lambda: len(began) == 2)

    worker = work_while(app, act, grace=0)
    assert [(returned, "ready", 0), (unsure, "unknown", 1)] == query(
        app, "select id, state, attempt from smena.jobs order by id"
    )
    assert [("handed_back", 1), ("unknown", 1)] == query(
        app, "select outcome, attempt from smena.attempts order by job_id"
    )
    assert {("job.handed_back", returned), ("job.unknown", unsure)} == {
        (name, fields["job"]) for name, fields in events if name.startswith("job.")
    }
    assert 1 == worker.failed


def test_a_handler_may_see_that_the_worker_stops(app: Smena) -> None:
    began = threading.Event()

    @app.task
    def polite() -> Snooze:
        began.set()
        while not current_job().stopping:
            threading.Event().wait(0.01)
        return Snooze(0)

    polite.enqueue()

    async def act(worker: Worker) -> None:
        await until(began.is_set)

    work_while(app, act, grace=30)
    assert [("scheduled", 0, 1)] == query(app, "select state, attempt, snoozes from smena.jobs")


def test_a_cancel_request_that_a_thread_ignores_leaves_its_work_done(app: Smena) -> None:
    began, told = threading.Event(), threading.Event()

    @app.task
    def deaf() -> str:
        began.set()
        told.wait(30)
        return "done anyway"

    job = deaf.enqueue()

    async def act(worker: Worker) -> None:
        await until(began.is_set)
        query(app, "select smena.cancel(%s)", job.id)
        await until(lambda: any(slot.current is not None and slot.current.cancelled for slot in worker.slots._slots))
        told.set()
        await until(lambda: states(app) == {"done": 1})

    work_while(app, act)
    assert "done anyway" == app.job(job.id).wait(1)


@pytest.mark.parametrize("part", ["open", "close"])
def test_a_lifespan_that_fails_is_told_and_leaves_nothing(database: str, part: str) -> None:
    @asynccontextmanager
    async def lifespan() -> Any:
        if part == "open":
            raise RuntimeError("no provider")
        yield
        raise RuntimeError("no provider")

    app = Smena(database, lifespan=lifespan)

    @app.task
    async def job() -> None: ...

    job.enqueue()
    subscribers = len(telemetry._subscribers)
    with pytest.raises(RuntimeError, match="no provider"):
        asyncio.run(asyncio.wait_for(Worker(app, WorkerOptions(until_empty=True)).run(), 30))
    assert subscribers == len(telemetry._subscribers)
    assert {"ready" if part == "open" else "done": 1} == states(app)
    assert [(0,)] == query(app, "select count(*) from smena.workers")
    assert "smena-lease" not in [thread.name for thread in threading.enumerate()]
    app.close()


def test_a_worker_that_is_cancelled_hands_its_work_back(app: Smena) -> None:
    @app.task
    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    began = threading.Event()
    long.enqueue()

    async def main() -> None:
        running = asyncio.create_task(Worker(app, WorkerOptions(grace=0)).run())
        async with asyncio.timeout(30):
            await until(began.is_set)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert [("ready", 0)] == query(app, "select state, attempt from smena.jobs")
    assert [(0,)] == query(app, "select count(*) from smena.workers")
