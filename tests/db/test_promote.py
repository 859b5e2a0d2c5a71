"""Scheduled jobs become ready when they are due, in that order, however many duties are at it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from kernel import Connection, Kernel, scenario
from smena._maintenance import promote
from smena._maintenance.promote import Promote


async def due(kernel: Kernel, ids: list[int], seconds_ago: float = 1.0) -> None:
    """So much time has passed; the first of the jobs is due first."""
    for n, id in enumerate(ids):
        await kernel.rows(
            "update smena.job set run_at = clock_timestamp() - make_interval(secs => %s) where id = %s",
            seconds_ago + (len(ids) - n) / 1_000,
            id,
        )


async def by_position(kernel: Kernel) -> list[int]:
    return [id for (id,) in await kernel.rows("select id from smena.job where state = 'r' order by pos")]


@scenario
async def test_due_jobs_become_ready_and_the_others_stay(database: str) -> None:
    async with Kernel(database) as kernel:
        ids = await kernel.enqueue(5, run_in=3_600.0)
        await due(kernel, ids[:3])
        await Promote("smena").tick(kernel.main)
        assert ["ready"] * 3 + ["scheduled"] * 2 == await kernel.states(ids)


@scenario
async def test_due_jobs_run_in_the_order_in_which_they_came_due(database: str) -> None:
    async with Kernel(database) as kernel:
        ids = await kernel.enqueue(200, run_in=3_600.0)
        turn = ids[100:] + ids[:100]
        await due(kernel, turn)
        await Promote("smena").tick(kernel.main)
        assert turn == await by_position(kernel)


@scenario
async def test_more_jobs_than_a_page_are_promoted_in_one_tick(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "PAGE", 7)
    async with Kernel(database) as kernel:
        ids = await kernel.enqueue(30, run_in=3_600.0)
        await due(kernel, ids)
        await Promote("smena").tick(kernel.main)
        assert ids == await by_position(kernel)


@scenario
async def test_job_that_was_committed_late_is_found_by_a_full_pass(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(promote.time, "monotonic", lambda: now[0])
    async with Kernel(database) as kernel:
        duty, late = Promote("smena"), await kernel.enqueue(run_in=3_600.0)
        early = await kernel.enqueue(run_in=3_600.0)
        await due(kernel, early)
        await duty.tick(kernel.main)
        await due(kernel, late, seconds_ago=60.0)
        await duty.tick(kernel.main)
        assert ["scheduled"] == await kernel.states(late), "far below the last one promoted"
        now[0] += 11.0
        await duty.tick(kernel.main)
        assert ["ready"] == await kernel.states(late)


@scenario
async def test_promoters_at_once_promote_each_job_once(database: str) -> None:
    async with Kernel(database) as kernel:
        ids = await kernel.enqueue(200, run_in=3_600.0)
        await due(kernel, ids)

        async def promoter(connection: Connection) -> None:
            moved = True
            while moved:  # under it: nothing was written, and the next tick comes soon
                with suppress(psycopg.errors.SerializationFailure):
                    await Promote("smena").tick(connection)
                    moved = False

        await asyncio.gather(*[promoter(await kernel.connect()) for _ in range(3)])
        assert sorted(ids) == sorted(await by_position(kernel))


@scenario
async def test_job_that_somebody_holds_does_not_stop_the_others(database: str) -> None:
    async with Kernel(database) as kernel:
        person, ids = await kernel.connect(), await kernel.enqueue(3, run_in=3_600.0)
        await due(kernel, ids)
        await person.execute("begin")
        await kernel.rows("select smena.cancel(%s)", ids[0], on=person)
        duty = Promote("smena")
        await duty.tick(kernel.main)
        assert ["scheduled", "ready", "ready"] == await kernel.states(ids)
        await person.rollback()
        await duty.tick(kernel.main)
        assert ["ready"] * 3 == await kernel.states(ids)


@scenario
async def test_next_tick_comes_when_the_next_job_is_due(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promote, "EVERY", 1_000.0)
    async with Kernel(database) as kernel:
        duty = Promote("smena")
        assert 1_000.0 == await duty.tick(kernel.main)
        await kernel.enqueue(run_in=3_600.0)
        assert 1_000.0 == await duty.tick(kernel.main)
        await kernel.enqueue(run_in=500.0)
        assert pytest.approx(450.0, abs=50.0) == await duty.tick(kernel.main)
