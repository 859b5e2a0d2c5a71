"""At most one active job of a queue has a unique key. Retrying and recovering never fail for it."""

from __future__ import annotations

import asyncio

import pytest

from kernel import SCHEMA, Claimer, Connection, Held, Kernel, scenario
from smena._drivers import arun
from smena._ops.jobs import NewJob, Order, enqueue
from smena.errors import RowMoved
from smena.jobs import Enqueued


def order(**more: object) -> Order:
    return Order(**{"task": "work", "queue": "q", "priority": 0, "max_attempts": 5} | more)  # type: ignore[arg-type]


async def store(kernel: Kernel, *keys: str, on: Connection | None = None, **more: object) -> list[Enqueued]:
    return await arun(enqueue(order(**more), [NewJob("{}", unique_key=key) for key in keys]), on or kernel.main, SCHEMA)


async def claimed(kernel: Kernel, claimer: Claimer) -> list[Held]:
    await claimer.beat()
    await claimer.look()
    return await claimer.claim()


async def in_state(kernel: Kernel, claimer: Claimer, state: str, **more: object) -> int:
    """A job with the key `k` in that state."""
    if state == "scheduled":
        more = {"run_in": 3_600.0, **more}
    jobs = [NewJob("{}", unique_key="k", order_key="o" if state == "blocked" else None)]
    [stored] = await arun(enqueue(order(**more), jobs), kernel.main, SCHEMA)
    if state == "cancelled":
        await kernel.rows("select smena.cancel(%s)", stored.id)
    elif state not in ("ready", "scheduled", "blocked"):
        held = await claimed(kernel, claimer)
        if state == "done":
            await claimer.finish(held)
        elif state != "running":
            await claimer.settle(held, state[0])
    assert state == await kernel.state(stored.id)
    return stored.id


@pytest.mark.parametrize("state", ["scheduled", "blocked", "ready", "running"])
@scenario
async def test_active_job_holds_its_key(database: str, state: str) -> None:
    async with Kernel(database) as kernel:
        id = await in_state(kernel, await kernel.claimer(), state)
        assert [Enqueued(id, created=False)] == await store(kernel, "k")
        [elsewhere] = await store(kernel, "k", queue="elsewhere")
        assert elsewhere.created


@pytest.mark.parametrize("state", ["done", "failed", "unknown", "cancelled"])
@scenario
async def test_job_that_is_over_holds_no_key(database: str, state: str) -> None:
    async with Kernel(database) as kernel:
        id = await in_state(kernel, await kernel.claimer(), state)
        [stored] = await store(kernel, "k")
        assert stored.created
        assert id < stored.id
        assert [Enqueued(stored.id, created=False)] == await store(kernel, "k")


@scenario
async def test_running_job_lets_one_more_wait_when_it_holds_its_key_for_waiting(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await in_state(kernel, claimer, "running", unique_mode="waiting")
        [second] = await store(kernel, "k", unique_mode="waiting")
        assert second.created
        assert [Enqueued(second.id, created=False)] == await store(kernel, "k", unique_mode="waiting")


@scenario
async def test_requeued_job_that_holds_its_key_for_waiting_lets_one_more_wait(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        id = await in_state(kernel, claimer, "failed", unique_mode="waiting")
        await kernel.ask("duties/prune_holds", after_queue=0, after_key="", page=10)
        assert "requeued" == await kernel.value("select smena.requeue(%s)", id)
        assert [id] == [job.id for job in await claimed(kernel, claimer)]
        [second] = await store(kernel, "k", unique_mode="waiting")
        assert second.created


@scenario
async def test_key_held_for_ever_outlives_its_job(database: str) -> None:
    async with Kernel(database) as kernel:
        id = await in_state(kernel, await kernel.claimer(), "done", unique_mode="forever")
        assert [Enqueued(id, created=False)] == await store(kernel, "k")
        await kernel.rows("delete from smena.job")  # its segment was dropped
        assert [Enqueued(id, created=False)] == await store(kernel, "k")


@scenario
async def test_key_held_for_some_seconds_is_free_when_they_are_over_and_not_before(database: str) -> None:
    async with Kernel(database) as kernel:
        id = await in_state(kernel, await kernel.claimer(), "done", unique_mode="seconds", unique_seconds=3_600.0)
        assert [Enqueued(id, created=False)] == await store(kernel, "k")
        await kernel.rows("update smena.unique_keys set expires_at = clock_timestamp()")
        [stored] = await store(kernel, "k")
        assert stored.created


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@scenario
async def test_enqueuer_waits_for_another_one_of_the_same_key(database: str, outcome: str) -> None:
    async with Kernel(database) as kernel:
        one, other = await kernel.connect(), await kernel.connect()
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        await one.execute("begin")
        [first] = await store(kernel, "k", on=one)
        waiting = asyncio.create_task(store(kernel, "k", on=other))
        await kernel.until_blocked(other)
        await one.execute(outcome)
        [second] = await waiting
        assert (Enqueued(first.id, created=False) if outcome == "commit" else Enqueued(second.id)) == second


@scenario
async def test_answers_come_in_the_order_of_the_jobs(database: str) -> None:
    async with Kernel(database) as kernel:
        [held] = await store(kernel, "m")
        z, m, a, again = await store(kernel, "z", "m", "a", "z")
        assert Enqueued(held.id, created=False) == m
        assert Enqueued(z.id, created=False) == again
        assert [True, True] == [z.created, a.created]
        assert z.id < a.id


@scenario
async def test_jobs_with_and_without_a_key_are_stored_in_one_call(database: str) -> None:
    async with Kernel(database) as kernel:
        stored = await arun(enqueue(order(), [NewJob("{}", unique_key="k"), NewJob("{}")]), kernel.main, SCHEMA)
        assert [True, True] == [each.created for each in stored]


@pytest.mark.parametrize("mode", ["active", "waiting"])
@scenario
async def test_requeue_into_a_taken_key_is_refused(database: str, mode: str) -> None:
    async with Kernel(database) as kernel:
        id = await in_state(kernel, await kernel.claimer(), "failed", unique_mode=mode)
        [other] = await store(kernel, "k", unique_mode=mode)
        answer = await kernel.value("select smena.requeue(%s)", id)
        assert "refused: another active job holds unique key k" == answer
        await kernel.rows("select smena.cancel(%s)", other.id)
        assert "requeued" == await kernel.value("select smena.requeue(%s)", id)
        assert [Enqueued(id, created=False)] == await store(kernel, "k")


@pytest.mark.parametrize("to", ["retry", "hand-back", "reap"])
@scenario
async def test_running_job_whose_key_was_taken_goes_on_all_the_same(database: str, to: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        id = await in_state(kernel, claimer, "running", unique_mode="waiting")
        [job] = await kernel.rows("select lane, pos, id, attempt from smena.job where id = %s", id)
        [other] = await store(kernel, "k", unique_mode="waiting")
        if to == "reap":
            await kernel.kill(claimer)
            await kernel.reap()
        else:
            assert 1 == await claimer.settle([Held(*job)], "s" if to == "retry" else "r", delay=3_600.0)
        expected = ["scheduled" if to == "retry" else "ready", "ready"]
        assert expected == await kernel.states([id, other.id])


@scenario
async def test_stricter_isolation_is_told_to_run_again_instead_of_being_stuck(database: str) -> None:
    async with Kernel(database) as kernel:
        strict = await kernel.connect()
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        await strict.execute("begin isolation level repeatable read")
        await kernel.rows("select 1 from smena.queues", on=strict)
        await store(kernel, "k")
        with pytest.raises(RowMoved):
            await store(kernel, "k", on=strict)


@scenario
async def test_pruning_leaves_the_holds_of_jobs_that_may_run_again_and_those_with_a_term(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await in_state(kernel, claimer, "failed")
        for key, more in {
            "active": {},
            "done": {},
            "later": {"run_in": 3_600.0},
            "ever": {"unique_mode": "forever"},
            "hour": {"unique_mode": "seconds", "unique_seconds": 3_600.0},
            "over": {"unique_mode": "seconds", "unique_seconds": 0.0},
        }.items():
            await store(kernel, key, **more)
        await kernel.rows("update smena.job set state = 'd' where unique_key in ('done', 'ever', 'hour', 'over')")
        await kernel.ask("duties/prune_holds", after_queue=0, after_key="", page=10)
        held = await kernel.rows("select unique_key from smena.unique_keys order by 1")
        assert ["active", "ever", "hour", "k", "later"] == [key for (key,) in held]
