"""Jobs of one order key run one after the other, by id, and nothing makes two of them ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kernel import Claimer, Connection, Held, Kernel, scenario

UNDER_WAY = "select count(*) from smena.job where order_key = %s and state in ('r', 'l', 'm', 's', 'u')"


async def keyed(kernel: Kernel, n: int = 1, on: Connection | None = None, key: str = "k", **order: object) -> list[int]:
    return await kernel.enqueue(on=on, keys=[{"order_key": key}] * n, **order)


async def activate(kernel: Kernel, on: Connection | None = None) -> int:
    return int((await kernel.ask("duties/activate", on, page=1000))[0][0])


async def take(kernel: Kernel, claimer: Claimer) -> Held:
    """Claims the one job that is ready."""
    await claimer.beat()
    await claimer.look()
    [job] = await claimer.claim()
    assert 1 == await kernel.value(UNDER_WAY, "k")
    return job


@scenario
async def test_jobs_of_a_key_run_one_after_the_other_by_id(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 4)
        assert ["blocked"] * 4 == await kernel.states(ids)
        assert 1 == await activate(kernel)
        assert 0 == await activate(kernel)
        ran = []
        for _ in ids:
            job = await take(kernel, claimer)
            ran.append(job.id)
            assert 1 == await claimer.finish_ordered([job])
        assert ids == ran
        assert [] == await kernel.rows("select * from smena.order_heads")


@scenario
async def test_priority_does_not_overtake_inside_a_key(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        first, second = await keyed(kernel, priority=0), await keyed(kernel, priority=100)
        await activate(kernel)
        for expected in (first, second):
            job = await take(kernel, claimer)
            assert expected == [job.id]
            await claimer.finish_ordered([job])


@scenario
async def test_keys_and_queues_do_not_wait_for_each_other(database: str) -> None:
    async with Kernel(database) as kernel:
        one, other = await keyed(kernel, 2), await keyed(kernel, 2, key="other")
        elsewhere = await keyed(kernel, 2, queue="elsewhere")
        assert 3 == await activate(kernel)
        assert ["ready", "blocked"] * 3 == await kernel.states(one + other + elsewhere)


@scenario
async def test_job_that_commits_late_waits_for_the_one_that_overtook_it(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, writer = await kernel.claimer(), await kernel.connect()
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        await writer.execute("begin")
        late = await keyed(kernel, on=writer)
        early = await keyed(kernel, 2)
        await activate(kernel)
        job = await take(kernel, claimer)
        assert early[0] == job.id
        await writer.commit()
        assert 0 == await activate(kernel)
        await claimer.finish_ordered([job])
        assert ["ready"] == await kernel.states(late)


@pytest.mark.parametrize(("after_failed", "then"), [("n", "ready"), ("b", "blocked")])
@scenario
async def test_failed_job_lets_the_next_one_run_or_blocks_its_key(database: str, after_failed: str, then: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 2, after_failed=after_failed)
        await activate(kernel)
        job = await take(kernel, claimer)
        await claimer.settle([job], "f", head=after_failed == "n")
        await activate(kernel)
        assert ["failed", then] == await kernel.states(ids)


@pytest.mark.parametrize(("remedy", "then"), [("requeue", ["ready", "blocked"]), ("delete_job", ["gone", "ready"])])
@scenario
async def test_key_blocked_by_a_failed_job_goes_on_with_that_job_or_without_it(
    database: str, remedy: str, then: list[str]
) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 2, after_failed="b")
        await activate(kernel)
        await claimer.settle([await take(kernel, claimer)], "f", head=False)
        await kernel.rows(f"select smena.{remedy}(%s, 'mended')", ids[0])
        await activate(kernel)
        assert then == await kernel.states(ids)


@scenario
async def test_requeued_job_whose_key_went_on_waits_its_turn(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 3)
        await activate(kernel)
        await claimer.settle([await take(kernel, claimer)], "f")
        await activate(kernel)
        job = await take(kernel, claimer)
        await kernel.rows("select smena.requeue(%s, 'again')", ids[0])
        await activate(kernel)
        assert ["blocked", "running", "blocked"] == await kernel.states(ids)
        await claimer.finish_ordered([job])
        assert ["ready", "done", "blocked"] == await kernel.states(ids)


@pytest.mark.parametrize(
    ("outcome", "state", "more"),
    [
        ("retry", "scheduled", {"to": "s", "delay": 3_600.0}),
        ("hand-back", "ready", {"to": "r"}),
        ("unknown", "unknown", {"to": "u"}),
    ],
)
@scenario
async def test_job_that_is_not_over_blocks_its_key(
    database: str, outcome: str, state: str, more: dict[str, object]
) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 2)
        await activate(kernel)
        assert 1 == await claimer.settle([await take(kernel, claimer)], **more)  # type: ignore[arg-type]
        assert 0 == await activate(kernel)
        assert [state, "blocked"] == await kernel.states(ids)


@scenario
async def test_job_of_a_dead_worker_keeps_its_turn(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 2)
        await activate(kernel)
        await take(kernel, claimer)
        await kernel.kill(claimer)
        await kernel.reap()
        assert 0 == await activate(kernel)
        assert ["ready", "blocked"] == await kernel.states(ids)


@scenario
async def test_scheduled_job_blocks_the_later_ones_that_could_run_at_once(database: str) -> None:
    async with Kernel(database) as kernel:
        ids = await keyed(kernel, run_in=3_600.0) + await keyed(kernel)
        assert 1 == await activate(kernel)
        assert ["scheduled", "blocked"] == await kernel.states(ids)
        await kernel.rows("update smena.jobs set state = 'ready' where id = %s", ids[0])
        assert ["ready", "blocked"] == await kernel.states(ids)


@pytest.mark.parametrize("lift", ["commit", "rollback"])
@scenario
async def test_locked_next_job_is_waited_for_and_not_skipped(database: str, lift: str) -> None:
    """A person is about to cancel the next job. The later ones wait for what becomes of it."""
    async with Kernel(database) as kernel:
        claimer, person, ids = await kernel.claimer(), await kernel.connect(), await keyed(kernel, 3)
        await activate(kernel)
        job = await take(kernel, claimer)
        await person.execute("begin")
        await kernel.rows("select smena.cancel(%s)", ids[1], on=person)
        assert 1 == await claimer.finish_ordered([job])
        assert 0 == await activate(kernel)
        assert ["done", "blocked", "blocked"] == await kernel.states(ids)
        await person.execute(lift)
        assert 1 == await activate(kernel)
        assert (["cancelled", "ready"] if lift == "commit" else ["ready", "blocked"]) == await kernel.states(ids[1:])


@scenario
async def test_two_activators_make_one_head(database: str) -> None:
    async with Kernel(database) as kernel:
        one, other = await kernel.connect(), await kernel.connect()
        ids = await keyed(kernel, 3)
        await one.execute("begin")
        assert 1 == await activate(kernel, one)
        assert 0 == await activate(kernel, other)
        # A person let the first row go meanwhile, so the second activator comes to the key itself.
        await one.commit()
        assert ["ready", "blocked", "blocked"] == await kernel.states(ids)


@scenario
async def test_activator_that_meets_a_finish_under_way_waits_for_its_outcome(database: str) -> None:
    """The finish saw no next job and gives the key up; the next one was stored just then."""
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel)
        await activate(kernel)
        job = await take(kernel, claimer)
        await claimer.connection.execute("begin")
        await claimer.finish_ordered([job])
        ids += await keyed(kernel, 2)
        assert 0 == await activate(kernel), "the head is still there for everybody else"
        await claimer.connection.commit()
        assert 1 == await activate(kernel)
        assert ["done", "ready", "blocked"] == await kernel.states(ids)


@scenario
async def test_activator_that_saw_the_key_idle_does_not_start_a_second_job(database: str) -> None:
    """Its statement began before another one made the head, and waits for that one in the primary key."""
    async with Kernel(database) as kernel:
        one, other, ids = await kernel.connect(), await kernel.connect(), await keyed(kernel, 2)
        await one.execute("begin")
        await kernel.rows("select id from smena.job where id = %s for update", ids[0], on=one)
        await kernel.rows("insert into smena.order_heads values (1, 'k', %s)", ids[0], on=one)
        await kernel.rows("update smena.job set state = 'c' where id = %s", ids[0], on=one)
        # The first row is locked, so the other activator skips the key; the second row alone is never its first.
        assert 0 == await activate(kernel, other)
        await one.rollback()
        await one.execute("begin")
        await kernel.rows("insert into smena.order_heads values (1, 'k', %s)", ids[0], on=one)
        waiting = asyncio.create_task(activate(kernel, other))
        await kernel.until_blocked(other)
        await one.commit()
        assert 0 == await waiting
        assert ["blocked", "blocked"] == await kernel.states(ids)


@scenario
async def test_late_finish_starts_nothing(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer, ids = await kernel.claimer(), await keyed(kernel, 2)
        await activate(kernel)
        job = await take(kernel, claimer)
        await kernel.kill(claimer)
        await kernel.reap()
        assert 0 == await claimer.finish_ordered([job])
        assert ["ready", "blocked"] == await kernel.states(ids)


@scenario
async def test_many_keys_finish_in_one_statement(database: str) -> None:
    async with Kernel(database) as kernel:
        claimer = await kernel.claimer()
        keys = [f"k{n}" for n in range(50)]
        ids = await kernel.enqueue(keys=[{"order_key": key} for key in keys * 3])
        assert 50 == await activate(kernel)
        for n in range(3):
            jobs: Sequence[Held] = []
            await claimer.beat()
            await claimer.look()
            jobs = await claimer.claim(100)
            assert ids[n * 50 : n * 50 + 50] == sorted(job.id for job in jobs)
            assert 50 == await claimer.finish_ordered(jobs)
