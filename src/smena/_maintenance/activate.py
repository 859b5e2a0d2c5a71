"""Starts the first job of order keys that have none under way.

A finished job starts the next one of its key itself; this finds the keys of which that could not be true: the first job
of a key, an enqueue that committed while the previous job finished, a failed head.
"""

from __future__ import annotations

import time

from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

PAGE = 1000


class Activate:
    name = "activate"

    def __init__(self, schema: str) -> None:
        self._schema = schema

    async def tick(self, connection: Connection) -> float:
        began = time.monotonic()
        while (await aexecute(connection, Query("duties/activate", {"page": PAGE}), self._schema))[0][0] >= PAGE:
            pass
        # Cheap with few keys, and then often; with many keys at most a twentieth of the time, but each second.
        return min(1.0, max(0.05, 20 * (time.monotonic() - began)))
