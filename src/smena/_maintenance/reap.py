"""Takes jobs away from dead incarnations. Every worker does it, in small pages that skip what others hold.

Death is an expired lease, on the database clock, and nothing else. A worker reaps only as a *witness*: it has itself
renewed without a gap of half a lease for one lease term, on a server that has been up that long, so the database was
there for all to renew. After an outage nobody is a witness for one lease term, and while there is none, a renewal gives
an expired lease back: nobody takes the living for dead.

For each dead incarnation, in one transaction a page:
  1. its row, FOR UPDATE SKIP LOCKED: one reaper at a time; marked, so that it is dead for ever and for everybody
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

    def __init__(self, schema: str, *, every: float, witness: Callable[[], int]) -> None:
        self._schema = schema
        self._every = every
        self._witness = witness

    async def tick(self, connection: Connection) -> float:
        seen: list[int] = []
        while True:
            dead = await self._query(connection, "workers/expired", incarnation=self._witness(), seen=seen)
            for incarnation, name in dead:
                await self.reap(connection, incarnation, name)
                seen.append(incarnation)
            if not dead:
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
                if start == 0:
                    await self._query(connection, "workers/bury", dead=incarnation)
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
        values = {"dead": incarnation, "incarnation": self._witness(), **lock_key(incarnation)}
        rows = await self._query(connection, "workers/lock_dead", **values)
        return bool(rows and rows[0][0])

    async def _query(self, connection: Connection, name: str, **values: Any) -> Any:
        return await aexecute(connection, Query(name, values), self._schema)
