"""Clears away what nothing points to any more, in small batches: stale unique holds, unanswered cancel requests."""

from __future__ import annotations

from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

EVERY = 30.0
PAGE = 500


class Prune:
    name = "prune"

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._after: tuple[int, str] = (0, "")

    async def tick(self, connection: Connection) -> float:
        await aexecute(connection, Query("duties/prune_cancels"), self._schema)
        values = {"after_queue": self._after[0], "after_key": self._after[1], "page": PAGE}
        rows = await aexecute(connection, Query("duties/prune_holds", values), self._schema)
        seen, queue, key = rows[0]
        self._after = (queue, key) if seen == PAGE else (0, "")
        return 1.0 if seen == PAGE else EVERY
