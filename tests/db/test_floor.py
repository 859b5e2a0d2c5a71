"""The floor loses no job: each history that could lose one, step by step. `Kernel.check_floor` states I5 and I7.

`low` is the position that becomes ready late, below what the worker has claimed already.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel import Claimer, Connection, Kernel, scenario
from smena import embedded
from smena._maintenance.floor import HOLES_AFTER, Floor


async def cast(kernel: Kernel) -> tuple[Claimer, Floor, Connection]:
    """A worker, the duty, and a writer. The queue is there already: its first use would make others wait."""
    await kernel.ask("jobs/make_lane", queue="q", priority=0)
    return await kernel.claimer(), Floor("smena", kernel.clock), await kernel.connect()


async def draw(kernel: Kernel, writer: Connection) -> int:
    """Draws a position under the lock, as an INSERT does before its first row: the transaction has no id yet."""
    await kernel.rows("lock table smena.job in row exclusive mode", on=writer)
    return int(await kernel.value("select nextval('smena.pos_seq')", on=writer))


async def fill(kernel: Kernel, writer: Connection, pos: int) -> None:
    await kernel.rows(
        "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args)"
        " select l.id, l.queue, %s, %s, 'r', 5, 'work', '{}' from smena.lanes l where l.id = smena.lane('q', 0)",
        pos,
        pos,
        on=writer,
    )


async def overtake(kernel: Kernel, worker: Claimer) -> list[int]:
    """The worker claims two later jobs, so far apart in time that looking back does not reach below them."""
    ids = []
    for _ in range(2):
        ids += await kernel.enqueue()
        await worker.beat()
        assert ids[-1:] == await worker.drain()
        kernel.clock.now += 2.0
    return ids


async def found(kernel: Kernel, worker: Claimer, floor: Floor, *, within: int) -> list[int]:
    """What the worker finds within so many passes and beats."""
    ids: list[int] = []
    for _ in range(within):
        await kernel.passes(floor)
        await worker.beat()
        ids += await worker.drain()
        await kernel.check_floor(floor)
    return ids


@scenario
async def test_position_drawn_before_the_transaction_has_an_id_is_not_taken_for_dead(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        has_id = True
        while has_id:  # one draw in 32 is logged, and gives the transaction its id
            await writer.execute("rollback; begin" if writer.info.transaction_status else "begin")
            low = await draw(kernel, writer)
            has_id = await kernel.value("select pg_current_xact_id_if_assigned() is not null", on=writer)
        await overtake(kernel, worker)
        for every in (0.5, 0.5, HOLES_AFTER, 0.5):
            await kernel.passes(floor, every=every)
            await kernel.check_floor(floor, unsettled=[low])
        await fill(kernel, writer, low)
        await writer.commit()
        assert [low] == await found(kernel, worker, floor, within=2)


@scenario
async def test_writer_whose_xid_is_not_below_a_snapshots_xmax_is_not_taken_for_dead(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        # The statement's snapshot is older than the id it draws: xmax is one above the last completed transaction.
        assert await kernel.value("select pg_snapshot_xmax(pg_current_snapshot()) <= pg_current_xact_id()", on=writer)
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        for every in (0.5, 0.5, HOLES_AFTER, 0.5):
            await kernel.passes(floor, every=every)
            await kernel.check_floor(floor, unsettled=[low])
        await writer.commit()
        assert [low] == await found(kernel, worker, floor, within=2)


@pytest.mark.parametrize("open_for", [0.5, HOLES_AFTER + 0.5], ids=["window open", "holes in care"])
@scenario
async def test_late_commit_below_a_claimed_position_is_found(database: str, open_for: float) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        await kernel.passes(floor)
        await kernel.passes(floor, every=open_for)
        await kernel.check_floor(floor, unsettled=[low])
        assert (open_for > HOLES_AFTER) == bool(floor._holes)
        await writer.commit()
        assert [low] == await found(kernel, worker, floor, within=3)
        assert await kernel.value("select last_value from smena.pos_seq") == (await kernel.floors())[0]


@scenario
async def test_late_jobs_are_lifted_in_their_order(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        late = await kernel.enqueue(100, on=writer)
        await overtake(kernel, worker)
        await kernel.passes(floor)
        await kernel.passes(floor, every=HOLES_AFTER + 0.5)
        await writer.commit()
        assert late == await found(kernel, worker, floor, within=2)


@scenario
async def test_worker_that_only_remembers_how_far_it_came_loses_a_late_commit(database: str) -> None:
    """The negative control: the same history with nobody to look after the floor."""
    async with Kernel(database) as kernel:
        worker, _, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        await writer.commit()
        for _ in range(10):
            kernel.clock.now += 0.5
            await worker.beat()
            assert [] == await worker.drain()
        assert "ready" == await kernel.state(low)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@pytest.mark.parametrize("what", ["claim", "lock"])
@scenario
async def test_late_commit_that_somebody_holds_stays_in_care_until_he_lets_go(
    database: str, what: str, outcome: str
) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        await kernel.passes(floor)
        await kernel.passes(floor, every=HOLES_AFTER + 0.5)
        await writer.commit()
        other = await kernel.claimer()
        await other.connection.execute("begin")
        if what == "claim":
            await other.beat()
            lane = next(lane for lane in other.lanes._serving if lane.kind == "n")
            assert [low] == [job.id for job in await other.claim_from(lane.id, low - 1)]
        else:
            assert [(low,)] == await kernel.rows(
                "select id from smena.job where id = %s for update", low, on=other.connection
            )
        assert [] == await found(kernel, worker, floor, within=5)
        await other.connection.execute(outcome)
        expected = [] if (what, outcome) == ("claim", "commit") else [low]
        assert expected == await found(kernel, worker, floor, within=2)
        assert [] == floor._holes


@scenario
async def test_rolled_back_claim_is_reported_and_workers_beyond_it_go_back(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, _ = await cast(kernel)
        other = await kernel.claimer()
        [low] = await kernel.enqueue()
        await other.beat()
        await other.look()
        await other.connection.execute("begin")
        assert [low] == [job.id for job in await other.claim()]
        await overtake(kernel, worker)
        assert [] == await found(kernel, worker, floor, within=4)
        assert low > (await kernel.floors())[1], "the floor waits for the outcome of a claim"
        await other.connection.execute("rollback")
        await kernel.passes(floor, 2)
        await worker.beat()
        assert low - 1 == next(lane for lane in worker.lanes._serving if lane.kind == "n").floor(kernel.clock())
        assert [low] == await worker.drain()
        other.lanes.restart()
        await other.beat()
        assert [] == await other.drain()


@scenario
async def test_transaction_that_was_rolled_back_leaves_no_hole_for_long(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await kernel.enqueue()
        for n in range(4):
            await writer.execute("begin")
            await kernel.enqueue(3, on=writer)
            await writer.execute("savepoint s")
            await kernel.enqueue(3, on=writer)
            await writer.execute("rollback to s")
            if n == 3:
                await kernel.passes(floor, every=HOLES_AFTER + 0.5)
                await kernel.passes(floor, every=HOLES_AFTER + 0.5)
            await writer.execute("rollback")
        await kernel.enqueue()
        await worker.beat()
        assert 2 == len(await worker.drain())
        await kernel.passes(floor, 2)
        head = await kernel.value("select last_value from smena.pos_seq")
        assert {head} == set((await kernel.floors()).values())
        assert [] == floor._holes


@scenario
async def test_enqueuer_idle_for_an_hour_holds_up_nobody_and_its_job_is_lifted_when_it_commits(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        began = kernel.clock()
        while kernel.clock() < began + 3_600:
            for _ in range(30):
                await kernel.passes(floor, every=4.0)
            [later] = await kernel.enqueue()
            await worker.beat()
            assert later in await worker.drain()
            await kernel.passes(floor, 6)
            floors = await kernel.floors()
            assert low - 1 == floors.pop(0)
            assert later <= min(floors.values())
        await kernel.check_floor(floor, unsettled=[low])
        await writer.commit()
        assert [low] == await found(kernel, worker, floor, within=2)
        assert await kernel.value("select last_value from smena.pos_seq") == (await kernel.floors())[0]


@scenario
async def test_pass_after_a_long_transaction_takes_as_many_statements_as_any_other(database: str) -> None:
    """Each scheduled job draws a position for its id and leaves it empty: a hole, for as long as the writer idles."""
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        for _ in range(6):
            for _ in range(50):
                await kernel.enqueue()
                await kernel.enqueue(run_in=3_600.0)
            await kernel.passes(floor)
        await kernel.passes(floor, every=HOLES_AFTER + 0.5)
        assert 300 < sum(len(holes.stretches) for holes in floor._holes)
        await worker.beat()
        await worker.drain()
        await writer.commit()
        statements = []
        query = floor._query

        async def counted(connection: Connection, name: str, **values: object) -> object:
            statements.append(name)
            return await query(connection, name, **values)

        floor._query = counted  # type: ignore[method-assign]
        assert [low] == await found(kernel, worker, floor, within=2)
        assert 30 > len(statements)


@pytest.mark.parametrize("ends", ["before", "after"])
@scenario
async def test_successor_of_a_killed_duty_finds_the_jobs_it_had_in_care(database: str, ends: str) -> None:
    async with Kernel(database) as kernel:
        worker, floor, writer = await cast(kernel)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        await kernel.passes(floor)
        await kernel.passes(floor, every=HOLES_AFTER + 0.5)
        assert floor._holes
        successor = Floor("smena", kernel.clock)
        if ends == "after":
            await kernel.passes(successor, 2)
            await kernel.check_floor(successor, unsettled=[low])
        await writer.commit()
        assert [low] == await found(kernel, worker, successor, within=3)


@scenario
async def test_two_holders_of_the_duty_at_once_lose_nothing(database: str) -> None:
    async with Kernel(database) as kernel:
        worker, first, writer = await cast(kernel)
        second = Floor("smena", kernel.clock)
        await writer.execute("begin")
        [low] = await kernel.enqueue(on=writer)
        await overtake(kernel, worker)
        await kernel.passes(first)
        await kernel.passes(first, every=HOLES_AFTER + 0.5)
        for floor in (second, first, second, second, first):
            await kernel.passes(floor, every=1.0)
            await kernel.check_floor(first, second, unsettled=[low])
        await writer.commit()
        ids = []
        for floor in (second, first, second, first):
            await kernel.passes(floor, every=0.25)
            await kernel.check_floor(first, second)
            await worker.beat()
            ids += await worker.drain()
        assert [low] == ids


@scenario
async def test_prepared_transaction_is_waited_for_across_a_restart(tmp_path: Path) -> None:
    from smena import _migrations

    settings = {"max_prepared_transactions": "5"}
    with embedded.server(tmp_path / "data", durable=False, settings=settings) as server:
        _migrations.migrate(server.dsn)
        async with Kernel(server.dsn) as kernel:
            worker, floor, writer = await cast(kernel)
            await writer.execute("begin")
            [low] = await kernel.enqueue(on=writer)
            await overtake(kernel, worker)
            await kernel.passes(floor)
            await writer.execute("prepare transaction 'late'")
            await kernel.passes(floor, 2)
            await kernel.check_floor(floor, unsettled=[low])
            [second] = await kernel.enqueue()
            await kernel.passes(floor, every=HOLES_AFTER + 0.5)
            await kernel.check_floor(floor, unsettled=[low])
    with embedded.server(tmp_path / "data", durable=False, settings=settings) as server:
        async with Kernel(server.dsn) as kernel:
            worker, floor._clock = await kernel.claimer(), kernel.clock
            assert [second] == await found(kernel, worker, floor, within=4)
            await kernel.check_floor(floor, unsettled=[low])
            await kernel.rows("commit prepared 'late'")
            assert [low] == await found(kernel, worker, floor, within=3)
