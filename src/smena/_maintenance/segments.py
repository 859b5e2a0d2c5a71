"""Supplies segments ahead of the sequence, leaves day-old ones, and drops those that nobody needs any more."""

from __future__ import annotations

import psycopg

from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

AHEAD = 8
KEEP_DONE = 3 * 86400.0
EVERY = 1.0
DROP_EVERY = 60


class Segments:
    name = "segments"

    def __init__(self, schema: str, keep: float = KEEP_DONE) -> None:
        self._schema = schema
        self._keep = keep
        self._ticks = 0

    async def tick(self, connection: Connection) -> float:
        await aexecute(connection, Query("duties/supply_segments", {"ahead": AHEAD}), self._schema)
        if self._ticks % DROP_EVERY == 0:
            await self.tidy(connection)
        self._ticks += 1
        return EVERY

    async def tidy(self, connection: Connection) -> list[str]:
        """Leaves the open segment if it is a day old, lifts what is left over in old ones, and drops; returns names.

        Each step tries for 50 ms to get its lock and leaves it at that: an open reader delays a drop, nothing else.
        """
        dropped = []
        try:
            async with connection.transaction():
                await connection.execute("set local lock_timeout = '50ms'")
                await aexecute(connection, Query("duties/leave_segment"), self._schema)
        except psycopg.errors.LockNotAvailable:
            pass
        await aexecute(connection, Query("duties/lift_leftovers", {"keep": self._keep, "page": 1000}), self._schema)
        while True:
            try:
                async with connection.transaction():
                    await connection.execute("set local lock_timeout = '50ms'")
                    rows = await aexecute(connection, Query("duties/drop_segment", {"keep": self._keep}), self._schema)
            except psycopg.errors.LockNotAvailable:
                break
            if rows[0][0] is None:
                break
            dropped.append(rows[0][0])
        return dropped
