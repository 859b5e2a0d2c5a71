"""Segments are there before they are needed, and go when nothing in them is needed any more."""

from __future__ import annotations

import asyncio
import secrets
import time

import psycopg
import pytest
from psycopg import sql

from kernel import Kernel, scenario
from smena._maintenance.floor import Floor
from smena._maintenance.segments import AHEAD, Segments

DAY = 86_400.0


async def ahead(kernel: Kernel) -> int:
    return int(
        await kernel.value("select count(*) from smena.segments where lo > (select last_value from smena.pos_seq)")
    )


async def bounds(kernel: Kernel) -> list[tuple[int, int]]:
    """The segments, which leave no position out, and are attached as they are written down."""
    rows = await kernel.rows("select lo, hi from smena.segments order by lo")
    assert [hi for _, hi in rows[:-1]] == [lo for lo, _ in rows[1:]]
    attached = await kernel.rows(
        "select pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = 'smena.job'::regclass and c.relname <> 'job_parked'"
    )
    assert {f"FOR VALUES FROM ('{lo}') TO ('{hi}')" for lo, hi in rows} == {bound for (bound,) in attached}
    return rows


async def draw_up_to(kernel: Kernel, pos: int) -> None:
    """As many positions as were drawn by work that is over."""
    await kernel.rows("select setval('smena.pos_seq', %s)", pos)


async def outgrow(kernel: Kernel) -> int:
    """The first segment becomes full, and is old by now with all that is done in it; returns its end."""
    [(_, hi), *_] = await bounds(kernel)
    await draw_up_to(kernel, hi + 5)
    await kernel.ask("duties/supply_segments", ahead=AHEAD)
    await kernel.rows("update smena.segments set closed_at = closed_at - interval '9 days' where closed_at is not null")
    await kernel.rows("update smena.job set finished_at = finished_at - interval '9 days'")
    await kernel.passes(Floor("smena", kernel.clock), 2)
    return hi


async def done(kernel: Kernel, n: int = 3) -> list[int]:
    claimer, ids = await kernel.claimer(), await kernel.enqueue(n)
    await claimer.beat()
    assert set(ids) <= set(await claimer.drain())
    return ids


@scenario
async def test_eight_segments_are_always_ahead(database: str) -> None:
    async with Kernel(database) as kernel:
        assert AHEAD == 8 == await ahead(kernel)
        for used in (1, 3):
            await draw_up_to(kernel, (await bounds(kernel))[used][1])
            await Segments("smena").tick(kernel.main)
            assert 8 == await ahead(kernel)
        await bounds(kernel)


@scenario
async def test_suppliers_at_once_make_each_segment_once(database: str) -> None:
    async with Kernel(database) as kernel:
        await draw_up_to(kernel, (await bounds(kernel))[4][1])
        suppliers = [await kernel.connect() for _ in range(5)]
        while await ahead(kernel) < 8:
            await asyncio.gather(*(kernel.ask("duties/supply_segments", each, ahead=8) for each in suppliers))
        assert 8 == await ahead(kernel)
        await bounds(kernel)


@scenario
async def test_enqueue_goes_on_in_the_next_segment(database: str) -> None:
    async with Kernel(database) as kernel:
        [(_, hi), *_] = await bounds(kernel)
        await draw_up_to(kernel, hi - 4)
        assert list(range(hi - 3, hi + 3)) == await kernel.enqueue(6)
        assert 2 == await kernel.value("select count(distinct tableoid) from smena.job where state = 'r'")
        claimer = await kernel.claimer()
        await claimer.beat()
        assert list(range(hi - 3, hi + 3)) == await claimer.drain()


@scenario
async def test_supply_waits_neither_for_readers_nor_for_enqueuers(database: str) -> None:
    async with Kernel(database) as kernel:
        reader, writer, supplier = await kernel.connect(), await kernel.connect(), await kernel.connect()
        await kernel.enqueue()
        for connection in (reader, writer):
            await connection.execute("begin")
        await kernel.rows("select count(*) from smena.job", on=reader)
        await kernel.enqueue(on=writer)
        await draw_up_to(kernel, (await bounds(kernel))[2][1])
        await supplier.execute("set lock_timeout = '50ms'")
        assert 3 == (await kernel.ask("duties/supply_segments", supplier, ahead=8))[0][0]
        assert 1 == len(await kernel.enqueue(on=writer))


@scenario
async def test_segment_size_follows_the_rate_so_that_few_are_attached(database: str) -> None:
    async with Kernel(database) as kernel:
        rows = await bounds(kernel)
        await draw_up_to(kernel, rows[4][1])
        await kernel.ask("duties/supply_segments", ahead=8)
        await kernel.rows(
            "update smena.segments set opened_at = opened_at - interval '1 hour' where opened_at is not null"
        )
        await draw_up_to(kernel, (await bounds(kernel))[5][1])
        await kernel.ask("duties/supply_segments", ahead=8)
        (lo, hi) = (await bounds(kernel))[-1]
        per_day = 24 * rows[4][1]
        assert pytest.approx(per_day * 3 / 16, rel=0.1) == hi - lo


@scenario
async def test_old_segment_whose_work_is_over_is_dropped_and_the_next_one_stays(database: str) -> None:
    async with Kernel(database) as kernel:
        ids = await done(kernel)
        await outgrow(kernel)
        later = await done(kernel)
        assert ["job_s1"] == await Segments("smena").tidy(kernel.main)
        assert [] == await Segments("smena").tidy(kernel.main)
        assert ["gone"] * 3 + ["done"] * 3 == await kernel.states(ids + later)
        await bounds(kernel)


@pytest.mark.parametrize("left", ["running", "started", "young", "retained"])
@scenario
async def test_segment_with_work_that_is_not_over_or_too_young_stays(database: str, left: str) -> None:
    async with Kernel(database) as kernel:
        await done(kernel)
        if left in ("running", "started"):
            claimer = await kernel.claimer()
            await kernel.enqueue()
            await claimer.beat()
            await claimer.look()
            [job] = await claimer.claim()
            if left == "started":
                values = {"lane": job.lane, "pos": job.pos, "incarnation": claimer.incarnation}
                await kernel.ask("jobs/mark_started", claimer.connection, **values)
        await outgrow(kernel)
        if left == "young":
            await kernel.rows("update smena.job set finished_at = clock_timestamp() where id = 1")
        keep = 10 * DAY if left == "retained" else 3 * DAY
        assert [] == await Segments("smena", keep).tidy(kernel.main)
        assert 1 == (await bounds(kernel))[0][0]


@scenario
async def test_segment_with_an_open_transaction_in_it_stays(database: str) -> None:
    async with Kernel(database) as kernel:
        writer = await kernel.connect()
        await done(kernel)
        await writer.execute("begin")
        [late] = await kernel.enqueue(on=writer)
        await outgrow(kernel)
        assert [] == await Segments("smena").tidy(kernel.main)
        await writer.commit()
        assert [] == await Segments("smena").tidy(kernel.main)
        assert "ready" == await kernel.state(late)


@scenario
async def test_ready_work_left_in_an_old_segment_is_lifted_and_the_segment_dropped(database: str) -> None:
    async with Kernel(database) as kernel:
        await done(kernel)
        left = await kernel.enqueue(100)
        hi = await outgrow(kernel)
        assert ["job_s1"] == await Segments("smena").tidy(kernel.main)
        lifted = await kernel.rows(
            "select j.id, l.kind, j.pos > %s from smena.job j join smena.lanes l on l.id = j.lane order by j.pos", hi
        )
        assert [(id, "r", True) for id in left] == lifted
        claimer = await kernel.claimer()
        await claimer.beat()
        assert left == await claimer.drain()


@scenario
async def test_requeue_under_way_takes_its_job_out_before_the_segment_goes(database: str) -> None:
    async with Kernel(database) as kernel:
        person, [id, *others] = await kernel.connect(), await done(kernel)
        await outgrow(kernel)
        await person.execute("begin")
        await kernel.rows("select smena.requeue(%s, 'once more', true)", id, on=person)
        assert [] == await Segments("smena").tidy(kernel.main)
        await person.commit()
        assert ["job_s1"] == await Segments("smena").tidy(kernel.main)
        assert ["ready", "gone", "gone"] == await kernel.states([id, *others])


@scenario
async def test_reader_delays_a_drop_and_nothing_else(database: str) -> None:
    async with Kernel(database) as kernel:
        reader = await kernel.connect()
        await done(kernel)
        await outgrow(kernel)
        await reader.execute("begin")
        await kernel.rows("select count(*) from smena.job_s1", on=reader)
        began = time.monotonic()
        assert [] == await Segments("smena").tidy(kernel.main)
        assert 2.0 > time.monotonic() - began, "50 ms, and a busy machine"
        assert 1 == len(await kernel.enqueue())
        await reader.commit()
        assert ["job_s1"] == await Segments("smena").tidy(kernel.main)


@scenario
async def test_day_old_segment_is_left_for_the_next_one(database: str) -> None:
    async with Kernel(database) as kernel:
        await kernel.ask("duties/supply_segments", ahead=8)
        await kernel.enqueue()
        assert not (await kernel.ask("duties/leave_segment"))[0][0], "it is young"
        await kernel.rows("update smena.segments set opened_at = opened_at - interval '25 hours'")
        [(_, hi), *_] = await bounds(kernel)
        assert (await kernel.ask("duties/leave_segment"))[0][0]
        assert [hi] == await kernel.enqueue()
        await kernel.ask("duties/supply_segments", ahead=8)
        assert 8 == await ahead(kernel)


@scenario
async def test_day_old_segment_without_a_job_is_not_left(database: str) -> None:
    async with Kernel(database) as kernel:
        await kernel.rows("update smena.segments set opened_at = clock_timestamp() - interval '25 hours' where id = 1")
        assert not (await kernel.ask("duties/leave_segment"))[0][0]


@scenario
async def test_leaving_gives_up_when_an_enqueuer_is_in_its_transaction(database: str) -> None:
    async with Kernel(database) as kernel:
        writer = await kernel.connect()
        await kernel.enqueue()
        await kernel.rows("update smena.segments set opened_at = clock_timestamp() - interval '25 hours' where id = 1")
        await writer.execute("begin")
        [id] = await kernel.enqueue(on=writer)
        await Segments("smena").tidy(kernel.main)
        assert [id + 1] == await kernel.enqueue()


@scenario
async def test_sequence_never_goes_back_while_segments_are_left_under_enqueuers(database: str) -> None:
    async with Kernel(database) as kernel:
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        busy = 4

        async def enqueuer() -> list[int]:
            nonlocal busy
            connection, ids = await kernel.connect(), []
            for _ in range(60):
                ids += await kernel.enqueue(on=connection)
            busy -= 1
            return ids

        async def leaver() -> int:
            left = 0
            while busy:
                with_supply = await kernel.ask("duties/supply_segments", ahead=8)
                assert with_supply
                await kernel.rows("update smena.segments set opened_at = clock_timestamp() - interval '25 hours'")
                left += bool((await kernel.ask("duties/leave_segment"))[0][0])
            return left

        *drawn, left = await asyncio.gather(*(enqueuer() for _ in range(busy)), leaver())
        assert 0 < left
        for ids in drawn:
            assert sorted(ids) == ids
        assert 240 == len({id for ids in drawn for id in ids})
        assert 240 == await kernel.value("select count(*) from smena.job")


@scenario
async def test_worker_that_owns_nothing_may_have_segments_made_and_an_enqueuer_may_not_drop_any(database: str) -> None:
    role = sql.Identifier(f"smena_test_{secrets.token_hex(6)}")
    async with Kernel(database) as kernel:
        await kernel.main.execute(sql.SQL("create role {0}; grant usage on schema smena to {0}").format(role))
        try:
            await draw_up_to(kernel, (await bounds(kernel))[0][1])
            other = await kernel.connect()
            await other.execute(sql.SQL("set role {}").format(role))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await kernel.rows("select smena.drop_segment(1000000000, interval '0')", on=other)
            await kernel.main.execute(sql.SQL("grant execute on function smena.supply_segments to {}").format(role))
            assert 1 == (await kernel.ask("duties/supply_segments", other, ahead=8))[0][0]
            assert 8 == await ahead(kernel)
        finally:
            await kernel.main.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))
