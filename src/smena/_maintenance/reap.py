"""Takes jobs away from dead incarnations. Every worker does it, in small pages that skip what others hold.

Death is an expired lease, on the database clock, and nothing else. A worker reaps only when it knows that the database
was there for all to renew: it has itself renewed without a gap for one lease term, and the server has been up that
long. So after an outage nobody takes the living for dead.

For each dead incarnation, in one transaction a page:
  1. its row, FOR UPDATE SKIP LOCKED: one reaper at a time
  2. its advisory lock, exclusively: a claim of it on its way holds it shared, and then we come again later;
     once held, no claim of it can start, because a claim looks at the lease after taking the lock
  3. its ledger page by page; each job it still holds goes to a fresh position, under (position, incarnation)
Killed anywhere: a page is one transaction, the rest is found by the next reaper. A late finish of the dead meets no
row at its position and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smena import telemetry
from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query
from smena._ops.workers import lock_key

PAGE = 50


class Reap:
    name = "reap"

    def __init__(self, schema: str, *, every: float, allowed: Callable[[], bool]) -> None:
        self._schema = schema
        self._every = every
        self._allowed = allowed

    async def tick(self, connection: Connection) -> float:
        if not self._allowed():
            return min(1.0, self._every)
        async with connection.transaction():
            dead = await self._query(connection, "workers/expired")
        for incarnation, name in dead:
            await self.reap(connection, incarnation, name)
        return self._every

    async def reap(self, connection: Connection, incarnation: int, name: str) -> int:
        """Takes everything from one dead incarnation; returns how many jobs moved."""
        moved = 0
        ledger = await self._query(connection, "workers/ledger", incarnation=incarnation)
        for start in range(0, max(len(ledger), 1), PAGE):
            page = ledger[start : start + PAGE]
            async with connection.transaction():
                if not await self._mine(connection, incarnation):
                    return moved
                values = {
                    "dead": incarnation,
                    "lanes": [row[0] for row in page],
                    "los": [row[1] for row in page],
                    "his": [row[2] for row in page],
                    "worker_name": name,
                }
                moved += len(await self._query(connection, "workers/reap", **values))
        async with connection.transaction():
            if await self._mine(connection, incarnation):
                await self._query(connection, "workers/forget_claims", dead=incarnation)
                await self._query(connection, "workers/forget", dead=incarnation)
        if moved:
            telemetry.emit("claims.reaped", worker=name, count=moved)
        return moved

    async def _mine(self, connection: Connection, incarnation: int) -> bool:
        """Locks the dead incarnation for this transaction, if it still is there, dead, and in nobody's hands."""
        rows = await self._query(connection, "workers/lock_dead", incarnation=incarnation, **lock_key(incarnation))
        return bool(rows and rows[0][0])

    async def _query(self, connection: Connection, name: str, **values: Any) -> Any:
        return await aexecute(connection, Query(name, values), self._schema)
