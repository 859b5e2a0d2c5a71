"""Keeps `smena.queue_stats`: counts and ages by queue and state, none of them counted beyond a cap."""

from __future__ import annotations

import time

from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

CAP = 10_000


class Counts:
    name = "counts"

    def __init__(self, schema: str, every: float = 2.0) -> None:
        self._schema = schema
        self._every = every

    async def tick(self, connection: Connection) -> float:
        began = time.monotonic()
        await aexecute(connection, Query("duties/count", {"cap": CAP}), self._schema)
        return max(self._every, 50 * (time.monotonic() - began))
