"""The sequence of positions falls behind the log: after a restore without it, a logical switchover, a promoted standby.

It is moved before a position is drawn twice, and every floor starts again, because jobs may have been stored below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kernel import Kernel, scenario
from smena import telemetry
from smena._maintenance.floor import Floor, rewind


@pytest.fixture
def rewound() -> Iterator[list[dict[str, Any]]]:
    """The position_rewound events."""
    events: list[dict[str, Any]] = []
    unsubscribe = telemetry.subscribe(
        lambda name, fields: events.append(fields) if name == "position_rewound" else None
    )
    yield events
    unsubscribe()


async def history(kernel: Kernel, floor: Floor) -> int:
    """Twenty jobs done and ten ready, all below the floors or at them; returns the head."""
    worker = await kernel.claimer()
    await kernel.enqueue(20)
    await worker.beat()
    assert 20 == len(await worker.drain())
    await kernel.enqueue(10)
    await kernel.passes(floor, 2)
    return int(await kernel.value("select last_value from smena.pos_seq"))


async def everything_runs(kernel: Kernel, floor: Floor, ids: list[int]) -> None:
    """Two workers, one of which was there before, run all of `ids` within a few passes."""
    worker = await kernel.claimer()
    done: list[int] = []
    for _ in range(4):
        await kernel.passes(floor)
        await kernel.check_floor(floor)
        await worker.beat()
        done += await worker.drain()
    assert sorted(ids) == sorted(done)


@scenario
async def test_sequence_that_went_back_is_moved_beyond_the_log(database: str, rewound: list[dict[str, Any]]) -> None:
    async with Kernel(database) as kernel:
        floor = Floor("smena", kernel.clock)
        head = await history(kernel, floor)
        ready = [id for (id,) in await kernel.rows("select id from smena.jobs where state = 'ready'")]
        await kernel.rows("select setval('smena.pos_seq', 5)")
        # Another queue's lane is empty, so nothing stops a position from being drawn twice there.
        early = await kernel.enqueue(3, queue="other")
        await kernel.passes(floor)
        assert [{"was": 8, "now": head}] == rewound
        assert [head + 1] == await kernel.enqueue()
        await everything_runs(kernel, floor, [*ready, *early, head + 1])


@scenario
async def test_sequence_made_anew_is_moved_beyond_the_log(database: str, rewound: list[dict[str, Any]]) -> None:
    async with Kernel(database) as kernel:
        floor = Floor("smena", kernel.clock)
        head = await history(kernel, floor)
        ready = [id for (id,) in await kernel.rows("select id from smena.jobs where state = 'ready'")]
        await kernel.rows("alter sequence smena.pos_seq restart")
        await kernel.passes(floor)
        assert [{"was": 0, "now": head}] == rewound
        await everything_runs(kernel, floor, ready)


@scenario
async def test_enqueue_onto_a_taken_position_is_refused_and_nothing_is_overwritten(database: str) -> None:
    async with Kernel(database) as kernel:
        await history(kernel, Floor("smena", kernel.clock))
        before = await kernel.rows("select id, state from smena.jobs order by id")
        await kernel.rows("select setval('smena.pos_seq', 5)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await kernel.enqueue()
        assert before == await kernel.rows("select id, state from smena.jobs order by id")


@scenario
async def test_successor_sees_a_sequence_behind_the_log(database: str, rewound: list[dict[str, Any]]) -> None:
    """It knows no earlier head, and the log's floor may lie far back: a switchover does not copy it in step."""
    async with Kernel(database) as kernel:
        head = await history(kernel, Floor("smena", kernel.clock))
        await kernel.rows("update smena.floors set floor = 3")
        await kernel.rows("select setval('smena.pos_seq', 5)")
        await kernel.passes(Floor("smena", kernel.clock))
        assert [{"was": 5, "now": head}] == rewound
        assert [head + 1] == await kernel.enqueue()


@scenario
async def test_ids_of_parked_jobs_count_as_positions_of_the_log(database: str) -> None:
    """A parked job lies at minus its id, so a second job of that id would meet it there."""
    async with Kernel(database) as kernel:
        await history(kernel, Floor("smena", kernel.clock))
        [parked] = await kernel.enqueue(run_in=3_600.0)
        await kernel.rows("select setval('smena.pos_seq', 5)")
        assert parked == await rewind(kernel.main, "smena")
        assert [parked + 1] == await kernel.enqueue(run_in=3_600.0)


@scenario
async def test_floors_count_as_positions_of_the_log_whose_segments_are_gone(database: str) -> None:
    async with Kernel(database) as kernel:
        head = await history(kernel, Floor("smena", kernel.clock))
        await kernel.rows("delete from smena.job")
        await kernel.rows("select setval('smena.pos_seq', 5)")
        assert head == await rewind(kernel.main, "smena")


@scenario
async def test_duty_gives_up_its_floors_when_another_process_moved_the_sequence(database: str) -> None:
    """A worker starts, and finds and mends what the duty did not see: the head is beyond the duty's once more."""
    async with Kernel(database) as kernel:
        floor = Floor("smena", kernel.clock)
        head = await history(kernel, floor)
        ready = [id for (id,) in await kernel.rows("select id from smena.jobs where state = 'ready'")]
        await kernel.ask("jobs/make_lane", queue="other", priority=0)
        await kernel.passes(floor, 2)
        await kernel.rows("select setval('smena.pos_seq', 5)")
        early = await kernel.enqueue(3, queue="other")
        assert head == await rewind(kernel.main, "smena")
        await everything_runs(kernel, floor, [*ready, *early])


@scenario
async def test_pass_that_was_under_way_while_the_sequence_was_moved_publishes_nothing(database: str) -> None:
    async with Kernel(database) as kernel:
        floor = Floor("smena", kernel.clock)
        await history(kernel, floor)
        await kernel.ask("jobs/make_lane", queue="other", priority=0)
        await kernel.passes(floor, 2)
        await kernel.rows("select setval('smena.pos_seq', 5)")
        early = await kernel.enqueue(3, queue="other")

        walk = floor._walk

        async def walk_late(connection: Any) -> None:
            floor._walk = walk  # type: ignore[method-assign]
            await rewind(await kernel.connect(), "smena")
            await walk(connection)

        floor._walk = walk_late  # type: ignore[method-assign]
        floor._head = 5  # its last look at the head was before the jump back
        await kernel.passes(floor)
        await kernel.check_floor(floor)
        ready = [id for (id,) in await kernel.rows("select id from smena.job where state = 'r'")]
        assert set(early) <= set(ready)
        await everything_runs(kernel, floor, ready)


@scenario
async def test_pass_on_another_connection_trusts_only_what_was_published(database: str) -> None:
    """A standby was promoted that had not got the last claim: the job is ready again, below what memory says."""
    async with Kernel(database) as kernel:
        floor, worker = Floor("smena", kernel.clock), await kernel.claimer()
        await kernel.enqueue()
        await worker.beat()
        await worker.drain()
        await kernel.passes(floor)
        standby = await kernel.rows("select lane, floor, straggler from smena.floors order by lane")
        [id] = await kernel.enqueue()
        await worker.beat()
        assert [id] == await worker.drain()
        await kernel.passes(floor)
        # What the standby has: neither the claim nor the floors that came after it.
        await kernel.rows("update smena.job set state = 'r', worker = null, attempt = 0 where id = %s", id)
        for lane, at, straggler in standby:
            await kernel.rows("update smena.floors set floor = %s, straggler = %s where lane = %s", at, straggler, lane)
        connection = await kernel.connect()
        for _ in range(3):
            await kernel.passes(floor, on=connection)
            await kernel.check_floor(floor)
        other = await kernel.claimer()
        await other.beat()
        assert [id] == await other.drain()
