"""Inline mode: enqueue runs the handler at once, as a worker would, and no database is touched."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from smena import (
    Cancel,
    InvalidArguments,
    JobState,
    JobUnsuccessful,
    OutcomeUnknown,
    Permanent,
    Retry,
    Smena,
    Snooze,
    Transient,
    current_job,
    telemetry,
)
from smena._ops import people
from smena.errors import ConfigurationError
from smena.testing import (
    adrain,
    assert_enqueued,
    drain,
    enqueued,
    inline,
    manual,
)

SLOW = Retry(attempts=3, first=3600, cap=3600)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Smena]:
    """An inline app whose database must not be asked for."""

    def touched(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a database was touched")

    monkeypatch.setattr(psycopg, "connect", touched)
    monkeypatch.setattr(psycopg.Connection, "connect", touched)
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", touched)
    monkeypatch.setattr("smena.embedded.server", touched)
    with inline(Smena()) as app:
        yield app


@dataclass
class Item:
    name: str
    price: Decimal


# What runs, with what


def test_handler_has_run_when_enqueue_returns(app: Smena) -> None:
    ran = []

    @app.task
    def charge(purchase: int) -> None:
        ran.append(purchase)

    assert charge.enqueue(17).created
    assert [17] == ran


def test_handler_gets_its_arguments_as_they_come_out_of_the_store(app: Smena) -> None:
    got: list[Any] = []

    @app.task
    def order(item: Item, *more: int, note: str = "none", **rest: float) -> None:
        got.append((item, more, note, rest))

    item = Item("tea", Decimal("29.30"))
    order.enqueue(item, 1, 2, weight=0.5)
    assert [(item, (1, 2), "none", {"weight": 0.5})] == got
    assert got[0][0] is not item


def test_arguments_that_do_not_fit_are_refused_and_nothing_runs(app: Smena) -> None:
    ran = []

    @app.task
    def charge(purchase: int) -> None:
        ran.append(purchase)

    with pytest.raises(InvalidArguments):
        charge.enqueue("17")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        charge.enqueue_many([(1,), ("2",)])
    assert [] == ran


def test_connection_and_run_time_do_not_matter(app: Smena) -> None:
    ran = []

    @app.task
    def charge(purchase: int) -> None:
        ran.append(purchase)

    charge.enqueue(17, conn=object())
    charge.using(run_in=3600, conn=object()).enqueue(18)
    asyncio.run(charge.aenqueue(19, conn=object()))  # type: ignore[arg-type]
    assert [17, 18, 19] == ran


def test_current_job_is_a_real_one(app: Smena) -> None:
    seen = []

    @app.task(retry=SLOW, timeout=60)
    def charge() -> None:
        job = current_job()
        seen.append((job.id, job.attempt, job.max_attempts, job.idempotency_key, dict(job.headers), job.token))
        left = job.remaining()
        assert left is not None
        assert 0 < left <= 60
        assert not job.stopping
        if job.attempt < 3:
            raise ValueError

    job = charge.using(headers={"trace": "abc"}).enqueue()
    other = charge.using(idempotency_key="mine").enqueue()
    first, second, third, *rest = seen
    assert [(job.id, attempt, 3) for attempt in (1, 2, 3)] == [each[:3] for each in (first, second, third)]
    assert first[3] == second[3] == third[3] != "mine"
    assert {"trace": "abc"} == first[4]
    assert first[5] < second[5] < third[5]
    assert [(other.id, "mine")] * 3 == [(each[0], each[3]) for each in rest]
    with pytest.raises(LookupError):
        current_job()


def test_tokens_grow_from_one_inline_to_the_next() -> None:
    tokens = []
    app = Smena()

    @app.task
    def charge() -> None:
        tokens.append(current_job().token)

    for _ in range(2):
        with inline(app):
            charge.enqueue()
    assert tokens[0] < tokens[1]


def test_jobs_of_an_enqueue_many_run_in_its_order(app: Smena) -> None:
    ran: list[int] = []

    @app.task
    def charge(purchase: int) -> None:
        ran.append(purchase)

    answers = charge.enqueue_many((n,) for n in range(20))
    assert list(range(20)) == ran
    assert sorted(answer.id for answer in answers) == [answer.id for answer in answers]


def test_another_app_is_not_inline(app: Smena) -> None:
    other = Smena("postgresql://localhost:1/nowhere")

    @other.task
    def charge() -> None: ...

    with pytest.raises(AssertionError, match="a database was touched"):
        charge.enqueue()


def test_mode_ends_with_its_block_and_may_be_nested() -> None:
    app = Smena("postgresql://localhost:1/nowhere")
    assert app.database.stand_in is None
    with inline(app) as same:
        assert same is app
        outer = app.database.stand_in
        with manual(app):
            assert app.database.stand_in is None
        with inline(app):
            assert app.database.stand_in not in (None, outer)
        assert outer is app.database.stand_in
    assert app.database.stand_in is None


# Failures


def test_failed_attempt_is_repeated_as_retry_says_without_its_pause(app: Smena) -> None:
    attempts = []

    @app.task(retry=SLOW)
    def charge() -> str:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise ConnectionError
        return "charged"

    began = time.monotonic()
    job = charge.enqueue()
    assert [1, 2, 3] == attempts
    assert "charged" == app.job(job.id).wait()
    assert time.monotonic() - began < 60


def test_enqueue_raises_what_the_last_attempt_raised(app: Smena) -> None:
    errors = [ValueError(n) for n in range(3)]
    left = iter(errors)

    @app.task(retry=SLOW)
    def charge() -> None:
        raise next(left)

    with pytest.raises(ValueError, match="2") as raised:
        charge.enqueue()
    assert errors[-1] is raised.value
    with pytest.raises(JobUnsuccessful, match="is failed: ERROR: 2"):
        app.job(enqueued(charge)[0].id).wait()


@pytest.mark.parametrize(
    ("error", "attempts", "state"),
    [
        (Permanent("VALIDATION", "amount is 0"), 1, "failed"),
        (OutcomeUnknown("no answer"), 1, "unknown"),
        (LookupError("mapped on the app"), 1, "failed"),
        (KeyError("mapped on the task"), 1, "unknown"),
        (Transient(retry_after=3600), 3, "failed"),
        (SystemExit(1), 3, "failed"),
        (RuntimeError("unclassified"), 3, "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_what_is_not_retried_by_a_worker_is_not_repeated_here(error: BaseException, attempts: int, state: str) -> None:
    app = Smena(failures={LookupError: "NOT_FOUND"})
    seen = []

    @app.task(retry=SLOW, failures={KeyError: "OUTCOME_UNKNOWN"})
    def charge() -> None:
        seen.append(current_job().attempt)
        raise error

    with inline(app):
        with pytest.raises(type(error)) as raised:
            charge.enqueue()
        assert error is raised.value
        assert attempts == len(seen)
        assert [state] == [job.state for job in enqueued(charge)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), pytest.fail.Exception("stop"), GeneratorExit()])
def test_what_must_end_the_test_comes_through_at_once(app: Smena, error: BaseException) -> None:
    attempts = []

    @app.task(retry=SLOW)
    def charge() -> None:
        attempts.append(1)
        raise error

    with pytest.raises(type(error)):
        charge.enqueue()
    assert [1] == attempts
    with pytest.raises(LookupError):
        current_job()


def test_stop_iteration_is_a_failure_like_others(app: Smena) -> None:
    @app.task(retry=Retry(attempts=1))
    def charge() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        charge.enqueue()


def test_one_failure_of_many_does_not_keep_the_others_from_running(app: Smena) -> None:
    ran = []

    @app.task(retry=Retry(attempts=1))
    def charge(purchase: int) -> None:
        ran.append(purchase)
        if purchase % 2:
            raise ValueError(purchase)

    with pytest.raises(ValueError, match="1") as raised:
        charge.enqueue_many([(n,) for n in range(4)])
    assert [0, 1, 2, 3] == ran
    assert 1 == len(raised.value.__notes__)
    assert "failed too: ValueError: 3" in raised.value.__notes__[0]


def test_async_handler_is_timed_out(app: Smena) -> None:
    attempts = []

    @app.task(retry=Retry(attempts=2), timeout=0.01)
    async def charge() -> None:
        attempts.append(1)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"):
        charge.enqueue()
    assert [1, 1] == attempts
    assert "TIMEOUT" == app.job(enqueued(charge)[0].id).read()["failure_kind"]


def test_time_out_of_the_handlers_own_is_its_own(app: Smena) -> None:
    @app.task(retry=Retry(attempts=1), timeout=60)
    async def charge() -> None:
        raise TimeoutError("the provider's")

    with pytest.raises(TimeoutError, match="the provider's"):
        charge.enqueue()
    assert "ERROR" == app.job(enqueued(charge)[0].id).read()["failure_kind"]


# What a handler returns


def test_result_is_kept_and_a_bad_one_loses_only_itself(app: Smena) -> None:
    told = []

    @app.task
    def charge(bad: bool) -> Any:
        return object() if bad else {"charged": Decimal("29.30")}

    stop = telemetry.subscribe(lambda name, fields: told.append(name))
    try:
        good, bad = charge.enqueue(False), charge.enqueue(True)
    finally:
        stop()
    assert {"charged": "29.30"} == app.job(good.id).wait()
    assert app.job(bad.id).wait() is None
    assert ["job.result_refused"] == told


def test_snoozed_job_is_left_scheduled_and_a_cancelled_one_cancelled(app: Smena) -> None:
    @app.task
    def charge(value: str) -> Any:
        return Snooze(60) if value == "snooze" else Cancel("not wanted")

    snoozed, cancelled = charge.enqueue("snooze"), charge.enqueue("cancel")
    row = app.job(snoozed.id).read()
    assert ("scheduled", 0, 1) == (row["state"], row["attempt"], row["snoozes"])
    assert JobState.CANCELLED == app.job(cancelled.id).state


# Async


def test_async_handler_runs_for_a_sync_caller(app: Smena) -> None:
    @app.task
    async def charge(purchase: int) -> int:
        await asyncio.sleep(0)
        return current_job().id + purchase

    job = charge.enqueue(17)
    assert job.id + 17 == app.job(job.id).wait()


def test_async_handler_runs_for_a_sync_caller_on_a_loop(app: Smena) -> None:
    @app.task
    async def charge(purchase: int) -> int:
        await asyncio.sleep(0)
        return purchase

    async def caller() -> Any:
        return app.job(charge.enqueue(17).id).wait()

    assert 17 == asyncio.run(caller())


def test_async_handler_is_awaited_on_the_callers_loop(app: Smena) -> None:
    loops = []

    @app.task
    async def charge() -> int:
        loops.append(asyncio.get_running_loop())
        return current_job().id

    async def caller() -> None:
        loops.append(asyncio.get_running_loop())
        job = await charge.aenqueue()
        assert job.id == await app.job(job.id).await_result()

    asyncio.run(caller())
    assert loops[0] is loops[1]


def test_sync_handler_of_an_async_caller_is_off_the_loop(app: Smena) -> None:
    @app.task
    def charge() -> int:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return current_job().id

    async def caller() -> None:
        job = await charge.aenqueue()
        assert job.id == await app.job(job.id).await_result()

    asyncio.run(caller())


def test_callers_on_one_loop_do_not_see_each_others_jobs(app: Smena) -> None:
    gate = asyncio.Barrier(2)

    @app.task
    async def charge(purchase: int) -> int:
        await gate.wait()
        note.enqueue(purchase)
        await gate.wait()
        return current_job().id

    @app.task
    def note(purchase: int) -> None: ...

    async def caller() -> None:
        jobs = await asyncio.gather(charge.aenqueue(1), charge.aenqueue(2))
        assert [job.id for job in jobs] == [await app.job(job.id).await_result() for job in jobs]

    asyncio.run(caller())
    assert_enqueued(note, count=2)


def test_event_loop_of_the_thread_stays_the_tests_own(app: Smena) -> None:
    @app.task
    async def charge() -> None: ...

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        charge.enqueue()
        assert loop is asyncio.get_event_loop()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_cancelled_caller_ends_at_once_and_no_attempt_is_repeated(app: Smena) -> None:
    attempts = []

    @app.task(retry=SLOW)
    async def charge() -> None:
        attempts.append(1)
        this = asyncio.current_task()
        assert this is not None
        this.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(charge.aenqueue())
    assert [1] == attempts


def test_handler_that_raises_cancelled_error_by_itself_has_failed(app: Smena) -> None:
    attempts = []

    @app.task(retry=Retry(attempts=2))
    async def charge() -> None:
        attempts.append(1)
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="nobody had cancelled it"):
        asyncio.run(charge.aenqueue())
    with pytest.raises(RuntimeError, match="nobody had cancelled it"):
        charge.enqueue()
    assert 4 == len(attempts)


def test_no_thread_is_left_behind(app: Smena) -> None:
    @app.task
    async def charge() -> None: ...

    async def caller() -> None:
        charge.enqueue()

    charge.enqueue()
    before = {thread for thread in threading.enumerate() if thread.name.startswith("smena")}
    asyncio.run(caller())
    assert before == {thread for thread in threading.enumerate() if thread.name.startswith("smena")}


# Jobs that jobs enqueue


def test_job_that_a_handler_enqueues_runs_when_that_handler_has_returned(app: Smena) -> None:
    story = []

    @app.task
    def order(depth: int) -> None:
        story.append(f"begin {depth}")
        if depth < 3:
            order.enqueue(depth + 1)
        story.append(f"end {depth}")

    order.enqueue(1)
    assert ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3"] == story


def test_failure_of_an_enqueued_job_is_not_its_enqueuers(app: Smena) -> None:
    attempts = []

    @app.task
    async def order() -> str:
        attempts.append("order")
        await charge.aenqueue()
        charge.enqueue()
        return "ordered"

    @app.task(retry=Retry(attempts=2))
    def charge() -> None:
        attempts.append("charge")
        raise ValueError("declined")

    with pytest.raises(ValueError, match="declined"):
        asyncio.run(order.aenqueue())
    assert ["order", "charge", "charge", "charge", "charge"] == attempts
    assert [JobState.DONE] == [job.state for job in enqueued(order)]


def test_handler_may_wait_for_a_job_that_it_enqueued(app: Smena) -> None:
    @app.task
    def order(fails: bool) -> Any:
        job = charge.enqueue(fails)
        return app.job(job.id).wait()

    @app.task(retry=Retry(attempts=1))
    async def charge(fails: bool) -> str:
        if fails:
            raise ValueError("declined")
        return "charged"

    assert "charged" == app.job(order.enqueue(False).id).wait()
    with pytest.raises(JobUnsuccessful, match="declined"):
        order.enqueue(True)


def test_chain_without_end_is_ended(app: Smena) -> None:
    @app.task
    def poll() -> None:
        poll.using(run_in=60).enqueue()

    with pytest.raises(ConfigurationError, match=r"more than 1,000 jobs.*drain"):
        poll.enqueue()


def test_job_enqueued_by_what_outlives_its_handler_still_runs(app: Smena) -> None:
    ran = []
    late: list[asyncio.Task[Any]] = []

    @app.task
    async def order() -> None:
        go = asyncio.Event()

        async def after() -> None:
            await go.wait()
            await charge.aenqueue()

        late.append(asyncio.create_task(after()))
        asyncio.get_running_loop().call_later(0.01, go.set)

    @app.task
    def charge() -> None:
        ran.append(1)

    async def caller() -> None:
        await order.aenqueue()
        assert [] == ran
        await late[0]

    asyncio.run(caller())
    assert [1] == ran


# Unique keys


def test_key_for_ever_is_taken_once(app: Smena) -> None:
    ran = []

    @app.task(unique_key=lambda purchase: f"p{purchase}", unique_for="forever")
    def charge(purchase: int) -> None:
        ran.append(purchase)

    first, again, other = charge.enqueue(1), charge.enqueue(1), charge.enqueue(2)
    assert (first.id, False) == (again.id, again.created)
    assert other.created
    many = charge.enqueue_many([(2,), (3,), (3,)])
    assert [False, True, False] == [each.created for each in many]
    assert [1, 2, 3] == ran


def test_jobs_of_many_may_have_a_key_or_none(app: Smena) -> None:
    @app.task(unique_key=lambda purchase: f"p{purchase}" if purchase else None, unique_for="forever")
    def charge(purchase: int) -> None: ...

    many = charge.enqueue_many([(0,), (1,), (0,), (1,)])
    assert [True, True, True, False] == [each.created for each in many]


def test_active_key_is_free_when_its_job_has_run(app: Smena) -> None:
    inner = []

    @app.task(unique_key="one")
    def charge(again: bool) -> None:
        if again:
            inner.append(charge.enqueue(False))

    @app.task(unique_key="two", unique_for="waiting")
    def poll(again: bool) -> None:
        if again:
            inner.append(poll.enqueue(False))

    assert charge.enqueue(True).created
    assert charge.enqueue(False).created
    assert poll.enqueue(True).created
    assert [False, True] == [each.created for each in inner]


def test_key_for_some_seconds_is_free_after_them(app: Smena, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(unique_key="one", unique_for=timedelta(minutes=1))
    def charge() -> None: ...

    now = time.monotonic()
    assert charge.enqueue().created
    assert not charge.enqueue().created
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert charge.enqueue().created


# What is refused


def test_what_needs_a_database_says_so(app: Smena) -> None:
    @app.task
    def charge() -> None: ...

    job = charge.enqueue()
    with pytest.raises(ConfigurationError, match=r"inline mode has no database.*manual"):
        app.database.run(lambda: people.cancel(job.id, None))
    with pytest.raises(ConfigurationError, match="nothing to drain"):
        drain(app)
    with pytest.raises(ConfigurationError, match="nothing to drain"):
        asyncio.run(adrain(app))
