"""What a worker gives back of itself: jobs at a shutdown, and an incarnation of whose claims it is not sure."""

from __future__ import annotations

import asyncio

import pytest

from kernel import SCHEMA, Claimer, Held, Kernel, scenario
from smena._ops.workers import lock_key
from smena._worker.incarnation import forget, retire
from smena.errors import LeaseLost


async def take(kernel: Kernel, claimer: Claimer, n: int = 10) -> list[Held]:
    await claimer.beat()
    await claimer.look()
    return await claimer.claim(n)


@scenario
async def test_retired_incarnation_gives_back_what_is_not_known_to_run_and_costs_it_no_attempt(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, other = await kernel.claimer(), await kernel.claimer()
        ids = await kernel.enqueue(4)
        known, *unknown = await take(kernel, claimer)
        handed = await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [known.pos])
        assert ids[1:] == sorted(handed)
        assert ["running", "ready", "ready", "ready"] == await kernel.states(ids)
        assert [1, 1, 1] == [job.attempt for job in await take(kernel, other)]
        assert [("handed_back", 3)] == await kernel.rows("select outcome, count(*) from smena.attempts group by 1")
        assert 0 == await claimer.finish(unknown)
        assert 1 == await claimer.finish([known])


@scenario
async def test_retired_incarnation_claims_nothing(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [])
        await kernel.enqueue()
        assert [] == await take(kernel, claimer)


@scenario
async def test_incarnation_is_not_retired_while_a_claim_of_it_is_under_way(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(2)
        await claimer.connection.execute("begin")
        await take(kernel, claimer)
        with pytest.raises(LeaseLost):
            await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [])
        await claimer.connection.commit()
        assert set(ids) == set(await retire(kernel.main, SCHEMA, claimer.incarnation, "w", []))


@scenario
async def test_incarnation_is_forgotten_when_nothing_of_it_runs(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await kernel.enqueue(2)
        jobs = await take(kernel, claimer)
        await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [job.pos for job in jobs])
        assert not await forget(kernel.main, SCHEMA, claimer.incarnation)
        await claimer.finish(jobs)
        assert await forget(kernel.main, SCHEMA, claimer.incarnation)
        assert 0 == await kernel.value("select count(*) from smena.claims")


@pytest.mark.parametrize("how", ["retire", "settle"])
@scenario
async def test_jobs_given_back_keep_their_order(database: str, how: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await kernel.enqueue(100)
        jobs: list[Held] = []
        for n in (7, 40, 53):
            jobs += await take(kernel, claimer, n)
        if how == "retire":
            await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [])
        else:
            assert 100 == await claimer.settle(jobs, "r")
        assert ids == [id for (id,) in await kernel.rows("select id from smena.job where pos > 100 order by pos")]


@scenario
async def test_claim_that_began_before_its_incarnation_was_retired_takes_nothing(database: str) -> None:
    """It waits for the row of a result that comes with it, and so has not yet taken the lock that retiring looks at."""
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        await kernel.enqueue()
        [job] = await take(kernel, claimer)
        await kernel.enqueue(3)
        await kernel.main.execute("begin")
        assert (await kernel.ask("workers/lock_claims", **lock_key(claimer.incarnation)))[0][0]
        values = {"incarnation": claimer.incarnation, "known": [], "worker_name": "w"}
        assert 1 == len(await kernel.ask("workers/retire", **values))
        fused = {"done_lane": job.lane, "lo": job.pos, "hi": job.pos, "map": b"\1", "lane": job.lane, "n": 3}
        claim = asyncio.create_task(claimer._claim(**fused))
        watch = await kernel.connect()
        while not await kernel.value(
            "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s",
            claimer.connection.info.backend_pid,
            on=watch,
        ):
            await asyncio.sleep(0.002)
        await kernel.main.commit()
        assert [None] == [row[1] for row in await claim]


@pytest.mark.parametrize("to", ["retry", "hand-back", "retire"])
@scenario
async def test_cancelled_job_whose_attempt_ends_before_it_is_told_does_not_run_again(database: str, to: str) -> None:
    async with Kernel(database) as kernel:
        claimer, [id] = await kernel.claimer(), await kernel.enqueue()
        jobs = await take(kernel, claimer)
        assert "requested" == await kernel.value("select smena.cancel(%s)", id)
        if to == "retire":
            await retire(kernel.main, SCHEMA, claimer.incarnation, "w", [])
        else:
            assert 1 == await claimer.settle(jobs, "s" if to == "retry" else "r")
        assert "cancelled" == await kernel.state(id)
