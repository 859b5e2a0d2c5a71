"""What a worker does with a job, one rule at a time; the worker runs in this process, on a real database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from smena import Cancel, Retry, Smena, Snooze, current_job, telemetry
from smena._worker.process import Worker, WorkerOptions

QUICK = Retry(attempts=3, first=0, jitter=0)


@pytest.fixture
def app(database: str) -> Any:
    app = Smena(database, lease=2)
    yield app
    app.close()


def query(app: Smena, sql: str, *values: Any) -> list[Any]:
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def work(app: Smena, **options: Any) -> Worker:
    worker = Worker(app, WorkerOptions(until_empty=True, **options))
    asyncio.run(asyncio.wait_for(worker.run(), 60))
    return worker


def work_until(app: Smena, act: Callable[[], Awaitable[None]], **options: Any) -> None:
    """Works while `act` runs, then stops."""

    async def main() -> None:
        worker = Worker(app, WorkerOptions(**options))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await act()
            worker.stop()
            await running

    asyncio.run(main())


async def until(condition: Callable[[], Any]) -> None:
    while not await asyncio.to_thread(condition):
        await asyncio.sleep(0.02)


def states(app: Smena) -> dict[str, int]:
    return dict(query(app, "select state, count(*) from smena.jobs group by 1"))


def test_an_async_attempt_over_its_time_is_cancelled_and_retried(app: Smena) -> None:
    ended = []

    @app.task(timeout=0.2, retry=Retry(attempts=2, first=0, jitter=0))
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(current_job().attempt)

    job = slow.enqueue().id
    work(app)
    assert [1, 2] == ended
    assert [("failed", "TIMEOUT", "ours", 2)] == query(
        app, "select state, failure_kind, failure_side, attempt from smena.jobs where id = %s", job
    )


def test_a_thread_over_its_time_is_given_up_and_its_late_result_counts_for_nothing(app: Smena) -> None:
    release = threading.Event()
    returned = threading.Event()

    @app.task(timeout=0.2, retry=Retry(attempts=1))
    def slow() -> int:
        release.wait(30)
        returned.set()
        return 17

    job = slow.enqueue().id

    async def act() -> None:
        await until(lambda: states(app) == {"failed": 1})
        release.set()
        await until(returned.is_set)

    work_until(app, act)
    assert [("failed", "TIMEOUT", None)] == query(
        app, "select state, failure_kind, result from smena.jobs where id = %s", job
    )


def test_a_time_out_of_what_must_not_repeat_is_unknown(app: Smena) -> None:
    @app.task(timeout=0.2, repeat=False)
    async def pay() -> None:
        await asyncio.sleep(60)

    pay.enqueue()
    work(app)
    assert [("unknown", "OUTCOME_UNKNOWN", "undecided")] == query(
        app, "select state, failure_kind, failure_side from smena.jobs"
    )


def test_a_handler_knows_its_job_and_its_token_grows(app: Smena) -> None:
    seen: dict[bool, list[tuple[Any, ...]]] = {True: [], False: []}

    def note(is_async: bool) -> None:
        job = current_job()
        left = job.remaining()
        assert left is not None
        assert 0 < left <= 30
        seen[is_async].append((job.id, job.token, job.attempt, job.idempotency_key, dict(job.headers)))
        if job.attempt < 3:
            raise RuntimeError("again")

    @app.task(retry=QUICK, timeout=30)
    async def on_the_loop() -> None:
        note(True)

    @app.task(retry=QUICK, timeout=30)
    def in_a_thread() -> None:
        note(False)

    for is_async, task in ((True, on_the_loop), (False, in_a_thread)):
        job = task.using(headers={"trace": "ж1"}).enqueue().id
        work(app)
        ids, tokens, attempts, keys, headers = zip(*seen[is_async], strict=True)
        assert {job} == set(ids)
        assert (1, 2, 3) == attempts
        assert sorted(set(tokens)) == list(tokens)
        assert set(keys) == {query(app, "select idempotency_key from smena.jobs where id = %s", job)[0][0]}
        assert ({"trace": "ж1"},) * 3 == headers
    with pytest.raises(LookupError, match="no job is running here"):
        current_job()


def test_b10_an_unfit_job_is_handed_back_and_the_rest_of_its_batch_runs(app: Smena) -> None:
    ran = []

    @app.task
    def fits(n: int) -> None:
        ran.append(n)

    fits.enqueue_many([(n,) for n in range(10)])
    lane = query(app, "select lane, queue from smena.job limit 1")[0]
    for task, args in (("nobody.knows_it", "{}"), (fits.name, '{"n": "x", "later": 1}')):
        query(
            app,
            "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args)"
            " select %s, %s, p, p, 'r', 5, %s, %s from nextval('smena.pos_seq') p",
            *lane,
            task,
            args,
        )
    work(app)
    assert set(range(10)) == set(ran)
    handed_back = "select state, attempt, failure_kind from smena.jobs where state <> 'done' order by id"
    assert [("scheduled", 0, "UNKNOWN_TASK"), ("scheduled", 0, "BAD_ARGUMENTS")] == query(app, handed_back)
    query(
        app,
        "update smena.job set unknown_since = clock_timestamp() - interval '16 minutes', run_at = clock_timestamp()"
        " where state = 's'",
    )
    work(app)
    assert [("failed", 0, "UNKNOWN_TASK"), ("failed", 0, "BAD_ARGUMENTS")] == query(app, handed_back)


def test_what_a_handler_returns_is_the_result_and_what_cannot_be_stored_costs_only_the_result(app: Smena) -> None:
    refused = []
    stop = telemetry.subscribe(
        lambda name, fields: refused.append(fields["job"]) if name == "job.result_refused" else None
    )

    @app.task
    async def answer(n: int) -> Any:
        return {1: {"счёт": [1, 2.5]}, 2: object(), 3: "x" * 100_000, 4: "NUL \0"}[n]

    ids = [answer.enqueue(n).id for n in (1, 2, 3, 4)]
    work(app)
    stop()
    assert {"done": 4} == states(app)
    assert ids[1:] == sorted(refused)
    assert {"счёт": [1, 2.5]} == app.job(ids[0]).wait(1)
    assert app.job(ids[1]).wait(1) is None


def test_every_outcome_is_recorded_with_its_attempt(app: Smena) -> None:
    @app.task(retry=QUICK)
    async def does(what: str) -> Any:
        if what == "cancel":
            return Cancel("not wanted")
        if what == "fail":
            raise RuntimeError("NUL \0, surrogate \ud800, 世界")
        return None

    jobs = {what: does.enqueue(what).id for what in ("cancel", "fail", "pass")}
    work(app)
    assert ["cancelled", "failed", "done"] == [app.job(id).state for id in jobs.values()]
    history = query(app, "select job_id, outcome, attempt from smena.attempts order by job_id, attempt")
    assert history == [
        (jobs["cancel"], "cancelled", 1),
        (jobs["fail"], "retried", 1),
        (jobs["fail"], "retried", 2),
        (jobs["fail"], "failed", 3),
    ]
    detail = app.job(jobs["fail"]).read()["failure_detail"]
    assert "世界" in detail["message"]


def test_a_snooze_costs_no_attempt_and_is_counted(app: Smena) -> None:
    runs = []

    @app.task
    async def later() -> Any:
        runs.append(current_job().attempt)
        return Snooze(0) if len(runs) < 4 else None

    later.enqueue()
    work(app)
    assert [1, 1, 1, 1] == runs
    assert [("done", 1, 3)] == query(app, "select state, attempt, snoozes from smena.jobs")


def test_an_expired_job_is_cancelled_without_a_start(app: Smena) -> None:
    ran = []

    @app.task
    def stale() -> None:
        ran.append(1)

    stale.using(expires_in=0.001).enqueue()
    work(app)
    assert [] == ran
    assert [("cancelled", 0)] == query(app, "select state, attempt from smena.jobs")


@pytest.mark.parametrize("is_async", [True, False])
def test_a_running_job_is_told_that_it_was_cancelled(app: Smena, is_async: bool) -> None:
    began = threading.Event()

    @app.task
    async def on_the_loop() -> None:
        began.set()
        await asyncio.sleep(60)

    @app.task
    def in_a_thread() -> Any:
        began.set()
        job = current_job()
        while not job.cancelled:
            began.wait(0.01)
        return Cancel("told")

    job = (on_the_loop if is_async else in_a_thread).enqueue().id

    async def act() -> None:
        await until(began.is_set)
        assert "requested" == query(app, "select smena.cancel(%s, 'changed my mind')", job)[0][0]
        await until(lambda: states(app) == {"cancelled": 1})

    work_until(app, act)
    assert [] == query(app, "select * from smena.cancel_requests")


def test_a_paused_queue_starts_nothing_and_goes_on_when_resumed(app: Smena) -> None:
    ran = []

    @app.task(queue="mail")
    async def mail(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.05)

    mail.enqueue_many([(n,) for n in range(40)])

    async def act() -> None:
        await until(lambda: len(ran) > 2)
        query(app, "update smena.queues set paused_at = clock_timestamp() where name = 'mail'")
        await until(lambda: query(app, "select count(*) from smena.jobs where state = 'running'")[0][0] == 0)
        stopped_at = len(ran)
        assert stopped_at < 40
        beats = 0
        while beats < 3:  # three looks at the lanes later, nothing more was started
            await asyncio.sleep(0.5)
            beats += 1
        assert stopped_at == len(ran)
        query(app, "update smena.queues set paused_at = null where name = 'mail'")
        await until(lambda: states(app) == {"done": 40})

    work_until(app, act, concurrency=1)
    assert [1] == [row[0] for row in query(app, "select distinct attempt from smena.jobs")]


def test_a_higher_priority_is_served_first(app: Smena) -> None:
    ran: list[int] = []

    @app.task
    async def work_on(priority: int) -> None:
        ran.append(priority)

    for priority in (0, 5, -5):
        work_on.using(priority=priority).enqueue_many([(priority,)] * 20)
    work(app, concurrency=1)
    assert 60 == len(ran)
    assert [5] * 15 == ran[:15]
    assert ran.index(-5) > ran.index(0) or ran.index(-5) > 15


@pytest.mark.parametrize("is_async", [True, False])
def test_never_more_jobs_run_than_there_are_slots(app: Smena, is_async: bool) -> None:
    lock = threading.Lock()
    now, most = [0], [0]

    def enter() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])

    def leave() -> None:
        with lock:
            now[0] -= 1

    @app.task
    async def on_the_loop() -> None:
        enter()
        await asyncio.sleep(0.005)
        leave()

    @app.task
    def in_a_thread() -> None:
        enter()
        threading.Event().wait(0.005)
        leave()

    (on_the_loop if is_async else in_a_thread).enqueue_many([()] * 200)
    work(app, concurrency=7)
    assert {"done": 200} == states(app)
    assert 2 <= most[0] <= 7


def test_large_arguments_come_whole(app: Smena) -> None:
    seen = []

    @app.task
    def big(text: str, n: int) -> None:
        seen.append((n, len(text)))

    big.enqueue_many([("ж" * 300_000, n) for n in range(5)])
    work(app)
    assert [(n, 300_000) for n in range(5)] == sorted(seen)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("is_async", [True, False])
def test_no_exception_of_a_handler_ends_the_worker(app: Smena, error: BaseException, is_async: bool) -> None:
    @app.task(retry=Retry(attempts=1))
    async def on_the_loop() -> None:
        raise error

    @app.task(retry=Retry(attempts=1))
    def in_a_thread() -> None:
        raise error

    @app.task
    async def fine() -> None: ...

    (on_the_loop if is_async else in_a_thread).enqueue()
    fine.enqueue()
    work(app)
    assert {"failed": 1, "done": 1} == states(app)


def test_the_lifespan_is_opened_once_and_closed_last(database: str) -> None:
    events = []

    class Lifespan:
        async def __aenter__(self) -> None:
            events.append("open")

        async def __aexit__(self, *error: object) -> None:
            events.append("close")

    app = Smena(database, lifespan=Lifespan)

    @app.task
    async def job(n: int) -> None:
        events.append("job")

    job.enqueue_many([(n,) for n in range(3)])
    work(app)
    app.close()
    assert ["open", "job", "job", "job", "close"] == events


def test_a_worker_leaves_no_row_no_thread_and_no_connection(app: Smena) -> None:
    @app.task
    def nothing() -> None: ...

    nothing.enqueue()
    work(app)
    app.close()
    assert [(0, 0)] == query(app, "select (select count(*) from smena.workers), (select count(*) from smena.claims)")
    assert [(0,)] == query(
        app,
        "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'smena%%'"
        " and pid <> pg_backend_pid()",
    )
    assert "smena-lease" not in [thread.name for thread in threading.enumerate()]
