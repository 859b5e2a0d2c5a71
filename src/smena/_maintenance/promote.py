"""Makes scheduled jobs ready when their time has come.

Killed between two pages: nothing is half done, a page is one statement. Two promoters at once skip each other's rows.
The scan starts at the run time promoted last, so that the entries of finished promotions, which an old snapshot may
keep alive, are not walked again; a full pass finds what was committed late, at most a twentieth of the time.
"""

from __future__ import annotations

import time

from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

PAGE = 500
EVERY = 0.5


class Promote:
    name = "promote"

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._floor = "-infinity"
        self._full_at = 0.0

    async def tick(self, connection: Connection) -> float:
        began = time.monotonic()
        full = began >= self._full_at
        floor = "-infinity" if full else self._floor
        while True:
            values = {"floor": floor, "page": PAGE}
            moved, reached = (await aexecute(connection, Query("duties/promote", values), self._schema))[0]
            if reached is not None:
                self._floor = reached if self._floor == "-infinity" else max(self._floor, reached)
            if moved < PAGE:
                break
        if full:
            self._full_at = time.monotonic() + max(10.0, 20 * (time.monotonic() - began))
        due = (await aexecute(connection, Query("duties/next_due"), self._schema))[0][0]
        # What is due and was not moved is in somebody's hands, or was committed late: the full pass comes for it.
        return EVERY if due is None or due <= 0 else min(EVERY, max(0.01, due))
