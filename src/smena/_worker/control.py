"""The control connection: beats once a second, waits for new positions in between, and keeps the ledger short.

A beat reads what changed for this worker (lanes, floors, pauses, cancel requests) and, on the way, takes or keeps the
maintenance lease. While the worker has nothing to do, the connection waits inside the server for the sequence to move.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

import psycopg

from smena import telemetry
from smena._drivers.psycopg import aexecute
from smena._ops.operation import Query
from smena._worker.claimed import Claim
from smena._worker.incarnation import check_home
from smena._worker.lease import LeaseKeeper
from smena._worker.link import GONE
from smena._worker.source import JobSource
from smena.errors import CopiedDatabase

BEAT = 1.0


class Control:
    """Runs for as long as the process lives."""

    def __init__(
        self,
        source: JobSource,
        keeper: LeaseKeeper,
        connect: Callable[[], Any],
        schema: str,
        queues: list[str] | None,
        lost: Callable[[], None],
        *,
        maintain: bool,
    ) -> None:
        self._source = source
        self._keeper = keeper
        self._connect = connect
        self._schema = schema
        self._queues = queues
        self._lost = lost
        self._maintain = maintain
        self.maintains = False
        self.server_up = 0.0
        self.beats = 0
        self.beaten = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Raises only CopiedDatabase, when a copy has taken the place of the database."""
        pause = 0.1
        while True:
            connection = None
            try:
                connection = await self._connect()
                await check_home(connection, self._schema)
                while True:
                    await self._beat(connection)
                    if pause > 0.1:
                        telemetry.emit("database.back")
                    pause = 0.1
                    await self._forget(connection)
                    await self._until_next(connection)
            except CopiedDatabase:
                raise
            except GONE as error:
                self.maintains = False
                telemetry.emit("database.lost", part="control", error=str(error).strip())
                if connection is not None:
                    self._lost()
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 2.0)
            finally:
                if connection is not None:
                    await connection.close()

    async def _beat(self, connection: psycopg.AsyncConnection[Any]) -> None:
        source = self._source
        rows = await aexecute(
            connection,
            Query(
                "workers/beat",
                {
                    "incarnation": source.incarnation,
                    "incarnations": self._keeper.held,
                    "maintain": self._maintain and source.claiming,
                    "queues": self._queues,
                },
            ),
            self._schema,
        )
        seen = json.loads(rows[0][0])
        self.maintains = seen["maintains"]
        self.server_up = seen["server_up"]
        if source.lanes.update(seen["lanes"], seen["head"]):
            source.look()
        for _, pos, reason in seen["cancels"]:
            source.slots.cancel(pos, reason)
        paused = source.lanes.paused_queues()
        if paused and source.slots.waiting:
            source.hand_back_waiting(paused)
        source.head_moved(seen["head"])
        self.beats += 1
        self.beaten.set()
        self.beaten.clear()

    async def _until_next(self, connection: psycopg.AsyncConnection[Any]) -> None:
        until = time.monotonic() + BEAT
        while (left := until - time.monotonic()) > 0.005:
            if self._source.claiming and self._source.lanes.next() is None:
                values = {"seen": self._source.head, "every": 0.005, "at_most": left}
                rows = await aexecute(connection, Query("workers/wait_change", values), self._schema)
                if rows[0][0] != self._source.head:
                    self._source.head_moved(rows[0][0])
                    # The channels look now; a burst of enqueues is one look, not one each.
                    await asyncio.sleep(0.005)
            else:
                await asyncio.sleep(min(left, 0.05))

    async def _forget(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Deletes ledger rows whose jobs all have an outcome.

        Only those of the present incarnation. The finishes of an earlier one may have been acknowledged by a server
        that is gone, and be unknown to the standby that took over: who retires it looks at the jobs themselves.
        """
        source = self._source
        forgotten, source.forgotten = source.forgotten, []
        forgotten = [claim for claim in forgotten if source.registered and claim.incarnation == source.incarnation]
        by_incarnation: dict[int, list[Claim]] = {}
        for claim in forgotten:
            by_incarnation.setdefault(claim.incarnation, []).append(claim)
        try:
            for incarnation, claims in by_incarnation.items():
                values = {
                    "incarnation": incarnation,
                    "lanes": [claim.lane for claim in claims],
                    "his": [claim.hi for claim in claims],
                }
                await aexecute(connection, Query("workers/settled_claims", values), self._schema)
        except BaseException:
            self._source.forgotten += forgotten
            raise
