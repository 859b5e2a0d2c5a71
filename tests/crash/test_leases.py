"""Who may be taken for dead, and by whom: the cases that no process can be made to meet in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from smena._drivers.psycopg import aexecute
from smena._maintenance.reap import Reap
from smena._ops.operation import Query
from smena._worker.incarnation import register

# What the tests' server is not.
_UP_FOR_A_DAY = """
create schema fake;
create function fake.pg_postmaster_start_time() returns timestamptz language sql stable
  as $$ select clock_timestamp() - interval '1 day' $$;
set search_path = fake, pg_catalog;
"""
Connection = psycopg.AsyncConnection[Any]
REAPER, OTHER = 1, 2


def _on(dsn: str, act: Callable[[Connection], Awaitable[None]]) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(_UP_FOR_A_DAY)
            await act(connection)

    asyncio.run(run())


async def _register(connection: Connection, incarnation: int, lease: float, *, unbroken: float, silent: float) -> None:
    """An incarnation that renewed without a gap for so long, and was silent for so long since."""
    who = {"name": f"worker-{incarnation}", "queues": None, "concurrency": 1, "release": None}
    await register(connection, "smena", incarnation=incarnation, lease=lease, **who)
    await connection.execute(
        "update smena.workers set unbroken_since = clock_timestamp() - make_interval(secs => %s),"
        " renewed_at = clock_timestamp() - make_interval(secs => %s),"
        " claimed_until = clock_timestamp() - make_interval(secs => %s) + make_interval(secs => lease)"
        " where incarnation = %s",
        [unbroken + silent, silent, silent, incarnation],
    )


async def _renews(connection: Connection, incarnation: int) -> bool:
    values = {"incarnations": [incarnation], "stopping": False}
    return bool(await aexecute(connection, Query("workers/renew", values), "smena"))


async def _there(connection: Connection) -> set[int]:
    rows = await (await connection.execute("select incarnation from smena.workers")).fetchall()
    return {row[0] for row in rows}


@pytest.mark.parametrize(
    ("reaper", "other", "dead"),
    [
        # lease, unbroken for, silent for     lease, silent for
        ((60, 70, 0), (60, 70), True),
        ((60, 50, 0), (60, 70), False),  # has not watched for long enough
        ((60, 900, 40), (60, 70), False),  # was away itself just now
        ((600, 900, 0), (60, 70), False),  # would not have seen an outage of a minute
        ((600, 900, 0), (60, 610), True),
        ((60, 500, 0), (600, 610), False),  # knows only what was while it watched
        ((60, 610, 0), (600, 610), True),
    ],
)
def test_a_reaper_takes_only_those_for_dead_of_whom_it_can_know(
    database: str, reaper: tuple[float, float, float], other: tuple[float, float], dead: bool
) -> None:
    async def act(connection: Connection) -> None:
        lease, unbroken, silent = reaper
        await _register(connection, REAPER, lease, unbroken=unbroken, silent=silent)
        await _register(connection, OTHER, other[0], unbroken=900, silent=other[1])
        # Who may be taken for dead does not come back, and who may not be does.
        async with connection.transaction(force_rollback=True):
            assert dead is not await _renews(connection, OTHER)
        await Reap("smena", every=1.0, witness=lambda: REAPER).tick(connection)
        assert dead is (OTHER not in await _there(connection))

    _on(database, act)


def test_who_was_reaped_in_part_never_comes_back(database: str) -> None:
    """Its reaper took a page of its jobs and was killed; then there was an outage, after which nobody is a witness."""

    class Killed(Exception):
        pass

    class ShortReap(Reap):
        async def _query(self, connection: Connection, name: str, **values: Any) -> Any:
            if name == "workers/forget_claims":
                raise Killed
            return await super()._query(connection, name, **values)

    async def act(connection: Connection) -> None:
        await _register(connection, REAPER, 60, unbroken=900, silent=0)
        await _register(connection, OTHER, 60, unbroken=900, silent=70)
        with pytest.raises(Killed):
            await ShortReap("smena", every=1.0, witness=lambda: REAPER).tick(connection)
        await connection.execute("update smena.workers set unbroken_since = clock_timestamp()")
        assert not await _renews(connection, OTHER)
        await Reap("smena", every=1.0, witness=lambda: REAPER).tick(connection)
        assert {REAPER} == await _there(connection)

    _on(database, act)
