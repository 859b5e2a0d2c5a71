"""Unique keys when several want the same one at the same time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import psycopg
import pytest

from kernel import SCHEMA, Connection, Kernel, scenario
from smena._drivers import arun
from smena._drivers.psycopg import aexecute
from smena._ops import jobs
from smena._ops.jobs import NewJob, Order, enqueue
from smena.errors import RowMoved
from smena.jobs import Enqueued

# What a transaction may always meet, and is then run again.
AGAIN = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
ORDER = Order(task="work", queue="q", priority=0, max_attempts=5)


async def store(kernel: Kernel, *keys: str, on: Connection | None = None) -> list[Enqueued]:
    return await arun(enqueue(ORDER, [NewJob("{}", unique_key=key) for key in keys]), on or kernel.main, SCHEMA)


async def failed(kernel: Kernel) -> int:
    """A failed job with the key `k`: its hold is stale."""
    claimer = await kernel.claimer()
    [stored] = await store(kernel, "k")
    await claimer.beat()
    await claimer.look()
    await claimer.settle(await claimer.claim(), "f")
    return stored.id


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(jobs.CHUNK_ROWS, id="one statement"),
        pytest.param(10, id="several statements"),
    ],
)
@scenario
async def test_bulk_enqueues_in_opposite_order_do_not_wait_for_each_other_in_a_circle(
    database: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "CHUNK_ROWS", rows)
    async with Kernel(database) as kernel:
        one, other, gate = await kernel.connect(), await kernel.connect(), await kernel.connect()
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        keys = [f"k{n:03}" for n in range(60)]
        await gate.execute("begin")
        await store(kernel, keys[30], on=gate)
        for connection in (one, other):
            await connection.execute("begin")
        forwards = asyncio.create_task(store(kernel, *keys, on=one))
        await kernel.until_blocked(one)
        backwards = asyncio.create_task(store(kernel, *reversed(keys), on=other))
        await kernel.until_blocked(other)
        await gate.rollback()
        first = await forwards
        await one.commit()
        second = await backwards
        await other.commit()
        assert [True] * 60 == [each.created for each in first]
        assert [Enqueued(each.id, created=False) for each in reversed(first)] == second


async def store_after(kernel: Kernel, meanwhile: Callable[[], Awaitable[object]]) -> list[Enqueued]:
    """Enqueues with the key `k`; `meanwhile` happens once, between the look at a stale hold and its take-over."""
    operation = enqueue(ORDER, [NewJob("{}", unique_key="k")])
    query, todo = next(operation), [meanwhile]
    while True:
        if query.name == "jobs/drop_stale_holds" and todo:
            await todo.pop()()
        try:
            query = operation.send(await aexecute(kernel.main, query, SCHEMA))
        except StopIteration as stop:
            assert not todo, "no stale hold was met"
            return list(stop.value)


@scenario
async def test_stale_hold_is_not_taken_over_when_its_job_was_requeued_meanwhile(database: str) -> None:
    async with Kernel(database) as kernel:
        id = await failed(kernel)

        async def requeue() -> None:
            assert "requeued" == await kernel.value("select smena.requeue(%s)", id)

        assert [Enqueued(id, created=False)] == await store_after(kernel, requeue)


@scenario
async def test_stale_hold_is_not_taken_over_when_it_was_pruned_and_its_job_requeued_meanwhile(database: str) -> None:
    async with Kernel(database) as kernel:
        id = await failed(kernel)

        async def requeue() -> None:
            await kernel.ask("duties/prune_holds", after_queue=0, after_key="", page=10)
            assert "requeued" == await kernel.value("select smena.requeue(%s)", id)

        assert [Enqueued(id, created=False)] == await store_after(kernel, requeue)


@scenario
async def test_stale_hold_is_taken_over_by_one_enqueuer_and_not_by_a_second_one(database: str) -> None:
    async with Kernel(database) as kernel:
        await failed(kernel)
        winners: list[Enqueued] = []

        async def overtake() -> None:
            winners.extend(await store(kernel, "k", on=await kernel.connect()))

        loser = await store_after(kernel, overtake)
        assert winners[0].created
        assert [Enqueued(winners[0].id, created=False)] == loser


@scenario
async def test_take_overs_of_many_stale_holds_do_not_wait_for_each_other_in_a_circle(database: str) -> None:
    async with Kernel(database) as kernel:
        one, other, gate = await kernel.connect(), await kernel.connect(), await kernel.connect()
        await store(kernel, "a", "m", "z")
        await kernel.rows("update smena.job set state = 'd'")
        holds = await kernel.ask("jobs/unique_holds", queue="q", keys='["a", "m", "z"]')
        stale = [{"u": key, "j": job, "v": version} for key, job, version, _ in sorted(holds)]
        await gate.execute("begin")
        await kernel.rows("select from smena.unique_keys where unique_key = 'm' for update", on=gate)
        forwards = asyncio.create_task(kernel.ask("jobs/drop_stale_holds", one, queue="q", holds=json.dumps(stale)))
        await kernel.until_blocked(one)
        backwards = asyncio.create_task(
            kernel.ask("jobs/drop_stale_holds", other, queue="q", holds=json.dumps(stale[::-1]))
        )
        await kernel.until_blocked(other)
        await gate.rollback()
        await asyncio.gather(forwards, backwards)
        assert [] == await kernel.rows("select * from smena.unique_keys")


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@scenario
async def test_requeue_waits_for_a_takeover_under_way(database: str, outcome: str) -> None:
    async with Kernel(database) as kernel:
        id = await failed(kernel)
        one, person = await kernel.connect(), await kernel.connect()
        await one.execute("begin")
        [taken] = await store(kernel, "k", on=one)
        assert taken.created
        requeue = asyncio.create_task(kernel.value("select smena.requeue(%s)", id, on=person))
        await kernel.until_blocked(person)
        await one.execute(outcome)
        assert ("requeued" if outcome == "rollback" else "refused") == (await requeue).partition(":")[0]
        active = await kernel.value("select count(*) from smena.jobs where state = 'ready'")
        assert 1 == active


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_no_two_jobs_of_a_key_are_active_whoever_races(database: str, seed: int) -> None:
    chance = random.Random(seed)
    async with Kernel(database) as kernel:
        await kernel.ask("jobs/make_lane", queue="q", priority=0)

        async def enqueuer() -> None:
            connection = await kernel.connect()
            for _ in range(40):
                with suppress(RowMoved, *AGAIN):
                    async with connection.transaction(force_rollback=chance.random() < 0.2):
                        await store(kernel, *chance.sample("abc", 2), on=connection)
                        await asyncio.sleep(chance.random() / 500)

        async def worker() -> None:
            claimer = await kernel.claimer()
            for _ in range(60):
                lanes: Sequence[tuple[int]] = await kernel.rows("select id from smena.lanes", on=claimer.connection)
                for (lane,) in lanes:
                    with suppress(*AGAIN):
                        for job in await claimer.claim_from(lane, 0, 1):
                            await claimer.settle([job], chance.choice("srffuc"))

        async def person() -> None:
            connection = await kernel.connect()
            for _ in range(60):
                over = "select id from smena.job where state in ('f', 'c') order by random() limit 2"
                for (id,) in await kernel.rows(over, on=connection):
                    with suppress(*AGAIN):
                        await kernel.rows("select smena.requeue(%s)", id, on=connection)
                with suppress(*AGAIN):
                    await kernel.ask("duties/promote", connection, floor="-infinity", page=1000)
                    await kernel.ask("duties/prune_holds", connection, after_queue=0, after_key="", page=10)

        async def witness() -> None:
            connection = await kernel.connect()
            while active > 0:
                assert [] == await kernel.rows(
                    "select unique_key, array_agg(id) from smena.job where state in ('s', 'b', 'r', 'l', 'm')"
                    " group by 1 having count(*) > 1",
                    on=connection,
                )

        async def counted(part: Callable[[], Awaitable[None]]) -> None:
            nonlocal active
            await part()
            active -= 1

        parts = (enqueuer, enqueuer, enqueuer, worker, worker, person)
        active = len(parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(witness())
            for part in parts:
                group.create_task(counted(part))
