"""What a drain does in the store is what a worker does, and the numbers it returns are those of the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from callers import CALLERS, Caller, on_a_loop
from smena import Cancel, JobState, OutcomeUnknown, Permanent, Retry, Smena, Snooze, current_job
from smena._worker.process import Worker, WorkerOptions
from smena.errors import ConfigurationError, CopiedDatabase
from smena.testing import (
    Drained,
    aassert_enqueued,
    adrain,
    aenqueued,
    arefute_enqueued,
    assert_enqueued,
    drain,
    enqueued,
    inline,
    manual,
    on_database,
    refute_enqueued,
)

Open = Callable[[str], AbstractAsyncContextManager[Caller]]
Drain = Callable[..., Drained]

TWICE = Retry(attempts=2, first=3600, cap=3600)


@pytest.fixture
def app(database: str) -> Iterator[Smena]:
    app = Smena(database)
    yield app
    app.close()


@pytest.fixture(params=["drain", "adrain"])
def drained(request: pytest.FixtureRequest, app: Smena) -> Drain:
    """Either of the twins."""

    def run(*args: Any, **kwargs: Any) -> Drained:
        if request.param == "drain":
            return drain(app, *args, **kwargs)
        return asyncio.run(adrain(app, *args, **kwargs))

    return run


def rows(app: Smena, query: str = "select * from smena.jobs order by id") -> list[dict[str, Any]]:
    with psycopg.connect(app.database.dsn, row_factory=dict_row) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type, call-overload, no-any-return, unused-ignore]


def states(app: Smena) -> dict[int, str]:
    return {row["id"]: row["state"] for row in rows(app)}


def check_nothing_is_held(app: Smena) -> None:
    """No drain is on the list of workers any more, and none holds a job."""
    assert [] == rows(app, "select * from smena.workers")
    assert [] == rows(app, "select * from smena.claims")
    assert [] == rows(app, "select * from smena.jobs where state = 'running'")


# What runs


@pytest.mark.smoke
def test_what_is_ready_runs_and_is_counted(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task
    def charge(purchase: int) -> int:
        ran.append((purchase, current_job().attempt, current_job().id))
        return purchase * 2

    jobs = charge.enqueue_many([(n,) for n in range(5)])
    assert Drained(done=5) == drained()
    assert [(n, 1, job.id) for n, job in enumerate(jobs)] == ran
    assert [("done", n * 2, 1) for n in range(5)] == [
        (row["state"], row["result"], row["attempt"]) for row in rows(app)
    ]
    assert 4 == app.job(jobs[2].id).wait(timeout=0)
    check_nothing_is_held(app)
    assert Drained() == drained()


def test_every_outcome_is_counted_as_the_store_has_it(app: Smena, drained: Drain) -> None:
    @app.task(retry=TWICE)
    async def work(how: str) -> Any:
        await asyncio.sleep(0)
        match how:
            case "snooze":
                return Snooze(60)
            case "cancel":
                return Cancel("not wanted")
            case "unknown":
                raise OutcomeUnknown("no answer", probe_key="p1")
            case "permanent":
                raise Permanent("VALIDATION", "amount is 0")
            case "retry":
                raise ConnectionError("refused")
        return None

    for how, times in {"done": 5, "snooze": 4, "cancel": 3, "unknown": 2, "permanent": 1, "retry": 6}.items():
        work.enqueue_many([(how,)] * times)
    expired = work.using(expires_in=0).enqueue("done")
    result = drained()
    counts = {row["state"]: row["n"] for row in rows(app, "select state, count(*) as n from smena.jobs group by 1")}
    assert {"done": 5, "failed": 1, "unknown": 2, "cancelled": 4, "scheduled": 10} == counts
    assert counts == {name: getattr(result, name) for name in counts}
    assert "cancelled" == states(app)[expired.id]
    stored = rows(
        app,
        "select id, task, state, failure_kind as kind, attempt, max_attempts, failure_detail as detail"
        " from smena.jobs where failure_kind is not null order by id",
    )
    assert 9 == len(stored)
    assert stored == [
        {name: getattr(failure, name) for name in row} for row, failure in zip(stored, result.failures, strict=True)
    ]
    assert {"OUTCOME_UNKNOWN", "VALIDATION", "ERROR"} == {failure.kind for failure in result.failures}
    check_nothing_is_held(app)


def test_store_is_left_as_a_worker_leaves_it(app: Smena, empty_database: str) -> None:
    @app.task(name="work", retry=TWICE, failures={LookupError: "NOT_FOUND"})
    async def work(how: str) -> Any:
        match how:
            case "value":
                return {"attempt": current_job().attempt, "key": how}
            case "snooze":
                return Snooze(600)
            case "cancel":
                return Cancel("not wanted")
            case "unknown":
                raise OutcomeUnknown("no answer", probe_key="p1")
            case "mapped":
                raise LookupError(how)
            case "retry":
                raise ConnectionError("refused")
            case "bad result":
                return object()
        return None

    @app.task(name="once", repeat=False, timeout=0.05)
    async def once() -> None:
        await asyncio.Event().wait()

    def enqueue() -> None:
        hows = ("value", "snooze", "cancel", "unknown", "mapped", "retry", "bad result", "none")
        work.enqueue_many([(how,) for how in hows])
        work.using(order_key="k").enqueue_many([(how,) for how in ("value", "mapped", "cancel", "retry", "none")])
        work.using(unique_key="u", headers={"a": "b"}).enqueue("value")
        work.using(expires_in=0).enqueue("value")
        work.using(run_in=600).enqueue("value")
        once.enqueue()

    def left() -> Any:
        jobs = rows(
            app,
            "select id, state, attempt, attempts_total, snoozes, crashes, requeues, result, failure_kind, failure_side,"
            " failure_detail - 'traceback' as detail, started_at is null as fresh, finished_at is null as open"
            " from smena.jobs order by id",
        )
        history = rows(
            app,
            "select job_id, attempt, outcome, kind, side, detail - 'traceback' as detail from smena.attempts"
            " order by job_id, attempt, outcome",
        )
        return jobs, history, rows(app, "select order_key, job_id from smena.order_heads")

    enqueue()
    drain(app)
    drained = left()
    with on_database(app, empty_database):
        app.migrate()
        enqueue()
        asyncio.run(Worker(app, WorkerOptions(until_empty=True, concurrency=1)).run())
        assert left() == drained
    assert {"done", "failed", "unknown", "cancelled", "scheduled", "blocked"} == {job["state"] for job in drained[0]}


def test_failure_tells_what_to_look_at(app: Smena, drained: Drain) -> None:
    raised = ValueError("no such purse")

    @app.task(name="charge", retry=TWICE)
    def charge() -> None:
        raise raised

    job = charge.enqueue()
    (failure,) = drained().failures
    assert raised is failure.error
    assert "smena/testing" not in failure.detail["traceback"]
    assert "raise raised" in failure.detail["traceback"]
    assert f"<job {job.id} charge is scheduled after attempt 1 of 2, ERROR: ValueError: no such purse>" == repr(failure)


def test_larger_priorities_and_lower_ids_go_first(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task
    def note(what: str) -> None:
        ran.append(what)
        if what == "third":
            note.using(priority=50).enqueue("fourth")

    note.enqueue("fifth")
    note.enqueue("sixth")
    note.using(priority=-1, queue="other").enqueue("last")
    note.using(priority=5).enqueue_many([("third",)])
    note.using(priority=7).enqueue_many([("first",), ("second",)])
    # The lane of priority 50 is there already; a lane made on the way is found when the known ones are empty.
    note.using(priority=50, run_in=3600).enqueue("later")
    assert 7 == drained().done
    assert ["first", "second", "third", "fourth", "fifth", "sixth", "last"] == ran


def test_jobs_of_an_order_key_run_in_the_order_of_their_ids(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task(order_key=lambda key, n: key, retry=TWICE)
    def note(key: str, n: int) -> None:
        ran.append((key, n))
        if (key, n) == ("b", 1):
            raise Permanent
        if (key, n) == ("c", 1):
            raise ConnectionError

    note.enqueue_many([(key, n) for n in range(3) for key in "abc"])
    result = drained()
    for key in "ab":
        assert [(key, 0), (key, 1), (key, 2)] == [each for each in ran if each[0] == key]
    assert [("c", 0), ("c", 1)] == [each for each in ran if each[0] == "c"]
    assert (6, 1, 1) == (result.done, result.failed, result.scheduled)
    assert ["blocked"] == [row["state"] for row in rows(app) if row["args"] == {"key": "c", "n": 2}]


def test_jobs_that_handlers_enqueue_run_too(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task
    def order(depth: int) -> None:
        ran.append(depth)
        if depth:
            order.using(queue=f"depth{depth}", order_key="k" if depth % 2 else None).enqueue(depth - 1)

    order.enqueue(4)
    assert Drained(done=5) == drained()
    assert [4, 3, 2, 1, 0] == ran


def test_many_jobs_are_drained(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    note.enqueue_many([(n,) for n in range(300)])
    assert Drained(done=300) == drained()
    assert list(range(300)) == ran


def test_only_these_queues_are_drained(app: Smena, drained: Drain) -> None:
    @app.task
    def note() -> None: ...

    jobs = {queue: note.using(queue=queue).enqueue().id for queue in ("a", "b", "c", "d")}
    note.using(queue="a", run_in=60).enqueue()
    note.using(queue="d", run_in=60).enqueue()
    assert Drained(done=1) == drained("b")
    assert Drained(done=3) == drained(["a", "c"], with_scheduled=True)
    assert {"ready"} == {states(app)[jobs["d"]]}
    assert Drained(done=1) == drained()
    assert Drained() == drained([])


def test_paused_queue_is_left_alone(app: Smena, drained: Drain) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue()
    with psycopg.connect(app.database.dsn) as connection:
        connection.execute("update smena.queues set paused_at = clock_timestamp()")
    assert Drained() == drained(until="done")
    assert ["ready"] == list(states(app).values())


def test_large_arguments_are_loaded(app: Smena, drained: Drain) -> None:
    got = []

    @app.task
    def note(text: str) -> None:
        got.append(text)

    text = "".join(f"{n:x}" for n in range(20_000))
    note.enqueue(text)
    assert Drained(done=1) == drained()
    assert [text] == got


def test_unknown_task_and_bad_arguments_are_handed_back_and_told(app: Smena, drained: Drain) -> None:
    older = Smena(app.database.dsn)

    @older.task(name="gone")
    def gone() -> None: ...

    @older.task(name="changed")
    def changed(a: str) -> None: ...

    @app.task(name="changed")
    def changed_since(a: int) -> None: ...

    gone.enqueue()
    changed.enqueue("x")
    older.close()
    result = drained(until="done")
    assert (2, 2) == (result.scheduled, len(result.failures))
    assert ["UNKNOWN_TASK", "BAD_ARGUMENTS"] == [failure.kind for failure in result.failures]
    assert [0, 0] == [row["attempt"] for row in rows(app)]


def test_time_out_is_the_workers(app: Smena, drained: Drain) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    slow = app.task(name="slow", timeout=0.02, retry=TWICE)(hang)
    once = app.task(name="once", timeout=0.02, repeat=False)(hang)
    slow.enqueue()
    once.enqueue()
    result = drained()
    assert {("slow", "TIMEOUT", "scheduled"), ("once", "OUTCOME_UNKNOWN", "unknown")} == {
        (failure.task, failure.kind, failure.state) for failure in result.failures
    }


# Later


def test_failed_job_waits_for_its_retry_unless_told_to_get_done(app: Smena, drained: Drain) -> None:
    attempts = []

    @app.task(retry=Retry(attempts=4, first=3600, cap=3600))
    def charge(until: int) -> None:
        attempts.append(current_job().attempt)
        if current_job().attempt < until:
            raise ConnectionError("refused")

    good, bad = charge.enqueue(3), charge.enqueue(9)
    result = drained()
    assert (2, 0, [1, 1]) == (result.scheduled, result.done + result.failed, attempts)
    assert Drained() == drained()
    assert Drained() == drained(until="done")  # it waits for what it ran, not for what others left

    result = drained(with_scheduled=True, until="done")
    assert (1, 1, 0) == (result.done, result.failed, result.scheduled)
    assert {good.id: "done", bad.id: "failed"} == states(app)
    assert [1, 1, 2, 2, 3, 3, 4] == attempts
    history = rows(app, "select outcome, count(*) as n from smena.attempts group by 1")
    assert {"retried": 5, "failed": 1} == {row["outcome"]: row["n"] for row in history}


def test_snoozed_job_does_not_keep_the_drain_from_ending(app: Smena, drained: Drain) -> None:
    attempts = []

    @app.task(retry=TWICE)
    def poll() -> Any:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise ConnectionError
        return Snooze(60)

    poll.enqueue()
    assert Drained(scheduled=1) == drained(until="done")
    assert [1, 2] == attempts
    assert Drained(scheduled=1) == drained(with_scheduled=True)


def test_scheduled_jobs_run_when_told_to_in_the_order_of_their_times(app: Smena, drained: Drain) -> None:
    ran = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)
        if n == 3:
            note.using(run_in=60).enqueue(99)

    for n in (3, 1, 2):
        note.using(run_in=n * 3600).enqueue(n)
    note.using(order_key="k", run_in=4 * 3600).enqueue(4)
    note.enqueue(0)
    assert Drained(done=1) == drained()
    assert Drained(done=4) == drained(with_scheduled=True)
    assert [0, 1, 2, 3, 4] == ran
    assert Drained(done=1) == drained(with_scheduled=True)
    assert 99 == ran[-1]


# Where handlers run


def test_sync_handlers_run_in_the_callers_thread(app: Smena) -> None:
    threads = []

    @app.task
    def note() -> None:
        threads.append(threading.current_thread())

    note.enqueue()
    assert Drained(done=1) == drain(app)
    assert [threading.current_thread()] == threads


@on_a_loop
async def test_async_handlers_run_on_the_callers_loop_and_sync_ones_off_it(app: Smena) -> None:
    loops: list[Any] = []

    @app.task
    async def there() -> None:
        loops.append(asyncio.get_running_loop())

    @app.task
    def off() -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        loops.append(None)

    await there.aenqueue()
    await off.aenqueue()
    assert Drained(done=2) == await adrain(app)
    assert [asyncio.get_running_loop(), None] == loops
    await app.aclose()


@on_a_loop
async def test_sync_drain_works_on_a_running_loop(app: Smena) -> None:
    ran = []

    @app.task
    async def note() -> None:
        await asyncio.sleep(0)
        ran.append(asyncio.get_running_loop())

    note.enqueue_many([(), ()])
    assert Drained(done=2) == drain(app)
    assert asyncio.get_running_loop() not in ran


def test_lifespan_surrounds_the_drain_in_one_task(database: str) -> None:
    story: list[Any] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            began = asyncio.Event()
            resident = group.create_task(began.wait())
            story.append(("begin", asyncio.get_running_loop()))
            yield
            began.set()
            await resident
            story.append(("end", asyncio.get_running_loop()))

    app = Smena(database, lifespan=lifespan)

    @app.task
    async def note() -> None:
        story.append(("note", asyncio.get_running_loop()))

    def words() -> list[str]:
        assert 1 == len({loop for _, loop in story})
        return [word for word, _ in story]

    note.enqueue_many([(), ()])
    assert Drained(done=2) == drain(app)
    assert ["begin", "note", "note", "end"] == words()
    story.clear()
    note.enqueue()
    assert Drained(done=1) == asyncio.run(adrain(app))
    assert ["begin", "note", "end"] == words()
    story.clear()
    note.enqueue()
    assert Drained(done=1) == drain(app, lifespan=False)
    assert ["note"] == words()
    app.close()


def test_lifespan_that_fails_is_raised_and_nothing_runs(database: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no network")
        yield

    app = Smena(database, lifespan=lifespan)

    @app.task
    def note() -> None: ...

    note.enqueue()
    with pytest.raises(OSError, match="no network"):
        drain(app)
    assert ["ready"] == list(states(app).values())
    app.close()


def test_no_transaction_is_open_while_a_handler_runs(app: Smena, drained: Drain) -> None:
    seen = []

    @app.task(repeat=False)
    def look() -> None:
        seen.extend(rows(app, "select state from pg_stat_activity where application_name = 'smena drain'"))
        seen.extend(rows(app, "select state, worker from smena.jobs"))

    look.enqueue()
    assert Drained(done=1) == drained()
    assert ["idle", "running"] == [row["state"] for row in seen]


# What interrupts


@pytest.mark.parametrize("error", [KeyboardInterrupt(), pytest.fail.Exception("stop")])
def test_interrupted_drain_hands_its_job_back(app: Smena, drained: Drain, error: BaseException) -> None:
    @app.task(name="plain")
    def plain() -> None:
        raise error

    plain.enqueue_many([(), ()])
    with pytest.raises(type(error)):
        drained()
    assert [("ready", 0), ("ready", 0)] == [(row["state"], row["attempt"]) for row in rows(app)]
    check_nothing_is_held(app)


def test_interrupted_job_that_must_not_repeat_ends_in_unknown(app: Smena, drained: Drain) -> None:
    @app.task(repeat=False)
    def once() -> None:
        raise KeyboardInterrupt

    once.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drained()
    assert ["unknown"] == list(states(app).values())
    check_nothing_is_held(app)


@on_a_loop
async def test_cancelled_drain_hands_its_job_back(app: Smena) -> None:
    running = asyncio.Event()

    @app.task
    async def hang() -> None:
        running.set()
        await asyncio.Event().wait()

    await hang.aenqueue()
    drains = asyncio.create_task(adrain(app))
    await running.wait()
    drains.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drains
    assert ["ready"] == list(states(app).values())
    check_nothing_is_held(app)
    await app.aclose()


def test_two_drains_at_once_run_each_job_once(app: Smena) -> None:
    ran: list[int] = []
    both = threading.Barrier(2, timeout=30)

    @app.task
    def note(n: int) -> None:
        if n < 2:
            both.wait()  # so that neither drain gets all of them
        ran.append(n)

    note.enqueue_many([(n,) for n in range(60)])
    results: list[Drained] = []
    other = threading.Thread(target=lambda: results.append(drain(app)))
    other.start()
    results.append(drain(app))
    other.join()
    assert list(range(60)) == sorted(ran)
    assert 60 == sum(result.done for result in results)
    assert {"done"} == set(states(app).values())


def test_copy_of_a_database_is_not_drained(app: Smena, drained: Drain) -> None:
    with psycopg.connect(app.database.dsn) as connection:
        connection.execute("update smena.installation set database_oid = 1")
    with pytest.raises(CopiedDatabase, match="smena db adopt"):
        drained()


def test_misspelt_until_is_refused(app: Smena, drained: Drain) -> None:
    with pytest.raises(ConfigurationError, match="until='finished'"):
        drained(until="finished")


# In the caller's own transaction


@pytest.fixture(params=CALLERS)
def opened(request: pytest.FixtureRequest) -> Open:
    return CALLERS[request.param]


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs what never waits, as all that a sync caller has."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def _drain(app: Smena, caller: Caller, **options: Any) -> Drained:
    if caller.asynchronous:
        return await adrain(app, conn=caller.conn, **options)
    return drain(app, conn=caller.conn, **options)


@on_a_loop
async def test_jobs_of_an_open_transaction_are_drained_in_it(app: Smena, opened: Open) -> None:
    ran = []

    @app.task(retry=TWICE)
    async def work(how: str) -> str:
        ran.append(how)
        if how == "fail":
            raise ValueError(how)
        return how

    async with opened(app.database.dsn) as caller:
        await caller.enqueue(work, "done")
        await caller.enqueue(work.using(order_key="k"), "ordered")
        await caller.enqueue(work.using(run_in=60), "later")
        await caller.enqueue(work, "fail")
        await caller.enqueue(work.using(headers={"a": "b"}), "x" * 20_000)
        result = await _drain(app, caller, with_scheduled=True, until="done")
        assert (4, 1) == (result.done, result.failed)
        assert ["done", "fail", "fail", "later", "ordered", "x" * 20_000] == sorted(ran)
        assert 4 == await caller.value("select count(*) from smena.jobs where state = 'done'")
        assert 0 == await caller.value("select count(*) from smena.workers")
        assert [] == rows(app)
        await caller.rollback()
    assert [] == rows(app)


@on_a_loop
async def test_handlers_failed_statement_does_not_spoil_the_transaction(app: Smena, opened: Open) -> None:
    async with opened(app.database.dsn) as caller:

        @app.task(retry=TWICE)
        def sync_work(how: str) -> None:
            at_once(caller.execute(f"insert into seen values ('{how}')"))
            if how == "spoil":
                at_once(caller.execute("insert into seen values (1 / 0)"))

        @app.task(retry=TWICE)
        async def async_work(how: str) -> None:
            await caller.execute(f"insert into seen values ('{how}')")
            if how == "spoil":
                await caller.execute("insert into seen values (1 / 0)")

        work = async_work if caller.asynchronous else sync_work
        await caller.execute("create temporary table seen (how text)")
        for how in ("first", "spoil", "last"):
            await caller.enqueue(work, how)
        result = await _drain(app, caller)
        assert (2, 1) == (result.done, result.scheduled)
        assert "first,last" == await caller.value("select string_agg(how, ',' order by how) from seen")


@on_a_loop
async def test_connection_that_commits_each_statement_can_be_drained_on(app: Smena) -> None:
    @app.task(retry=TWICE)
    def work(fail: bool) -> None:
        if fail:
            raise ValueError

    work.enqueue(False)
    work.enqueue(True)
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        result = drain(app, conn=connection)
    assert (1, 1) == (result.done, result.scheduled)
    check_nothing_is_held(app)


@on_a_loop
async def test_jobs_of_an_open_transaction_can_be_asserted_in_it(app: Smena, opened: Open) -> None:
    @app.task(name="charge")
    def charge(purchase: int) -> None: ...

    async with opened(app.database.dsn) as caller:
        await caller.enqueue(charge, 17)
        await caller.enqueue(charge.using(queue="other", order_key="k"), 18)
        if caller.asynchronous:
            (found,) = await aassert_enqueued(charge, args=(17,), conn=caller.conn)
            await aassert_enqueued(app, kwargs={"purchase": 18}, queue="other", order_key="k", conn=caller.conn)
            await arefute_enqueued(charge, args=(19,), conn=caller.conn)
            with pytest.raises(AssertionError, match=r"Enqueued instead:\n  job \d+: charge\(purchase=17\)"):
                await aassert_enqueued(charge, args=(19,), conn=caller.conn)
            await arefute_enqueued(charge)
            both = await aenqueued(charge, conn=caller.conn)
        else:
            (found,) = assert_enqueued(charge, args=(17,), conn=caller.conn)
            assert_enqueued(app, kwargs={"purchase": 18}, queue="other", order_key="k", conn=caller.conn)
            refute_enqueued(charge, args=(19,), conn=caller.conn)
            with pytest.raises(AssertionError, match=r"Enqueued instead:\n  job \d+: charge\(purchase=17\)"):
                assert_enqueued(charge, args=(19,), conn=caller.conn)
            refute_enqueued(charge)
            both = enqueued(charge, conn=caller.conn)
        assert (JobState.READY, {"purchase": 17}) == (found.state, found.arguments)
        assert [JobState.READY, JobState.BLOCKED] == [job.state for job in both]
        await caller.rollback()
        assert [] == await aenqueued(app)
    await app.aclose()


# What was enqueued, in any state and under any name


def test_jobs_under_an_earlier_name_or_signature_are_the_tasks(app: Smena) -> None:
    older = Smena(app.database.dsn)

    @older.task(name="pay")
    def pay(n: int, cents: float = 0.5) -> None: ...

    @older.task(name="charge")
    def old_charge(gone: str) -> None: ...

    @app.task(name="charge", aliases=["pay"])
    def charge(n: int, cents: float = 0.0) -> None: ...

    pay.enqueue(2**53 + 1, 0.1)
    old_charge.enqueue("x")
    first, second = enqueued(charge)
    assert {"n": 2**53 + 1, "cents": 0.1} == first.arguments
    assert {"gone": "x"} == second.arguments
    assert [first] == assert_enqueued(charge, args=(2**53 + 1,))
    assert 2 == len(enqueued(older))
    older.close()


def test_jobs_that_ran_were_enqueued_all_the_same(app: Smena, drained: Drain) -> None:
    @app.task
    def charge(n: int) -> None:
        if n:
            raise Permanent

    charge.enqueue(0)
    charge.enqueue(1)
    drained()
    assert [JobState.DONE, JobState.FAILED] == [job.state for job in enqueued(charge)]


# Modes and databases


def test_manual_inside_inline_stores_jobs(app: Smena) -> None:
    ran = []

    @app.task
    def charge() -> None:
        ran.append(1)

    with inline(app):
        charge.enqueue()
        assert [] == rows(app)
        with manual(app):
            charge.enqueue()
            assert [1] == ran
            assert Drained(done=1) == drain(app)
    assert [1, 1] == ran
    assert 1 == len(rows(app))


def test_app_goes_to_another_database_and_back(app: Smena, empty_database: str) -> None:
    @app.task
    def charge() -> None: ...

    home = app.database.dsn
    charge.enqueue()
    with asyncio.Runner() as runner, on_database(app, empty_database):
        app.migrate()
        charge.enqueue()
        runner.run(charge.aenqueue())
        assert 2 == len(enqueued(app)) == len(runner.run(aenqueued(app)))
        assert empty_database == app.database.dsn
    assert home == app.database.dsn
    assert 1 == len(enqueued(app))
    with psycopg.connect(empty_database) as connection:
        left = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'smena'"
        ).fetchone()
    assert (0,) == left
