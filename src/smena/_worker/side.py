"""The side connection: what a slot needs of the database before it starts a handler. Opened when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from smena._drivers.psycopg import aexecute
from smena._ops.operation import Query
from smena._worker.claimed import ClaimedJob
from smena._worker.link import GONE, Link
from smena._worker.source import JobSource


class Side:
    """Large arguments, and the start marks of jobs that must not repeat."""

    def __init__(self, source: JobSource, connect: Callable[[], Awaitable[Link]], schema: str) -> None:
        self._source = source
        self._connect = connect
        self._schema = schema
        self._connection: Link | None = None
        self._lock = asyncio.Lock()

    def stir(self) -> None:
        self._source.stir()

    def lost(self, job: ClaimedJob) -> None:
        self._source.lost(job)

    async def load_args(self, job: ClaimedJob) -> str | None:
        """The arguments; None when the job is not ours any more."""
        rows = await self._query("jobs/load_args", job)
        return str(rows[0][0]) if rows else None

    async def mark_started(self, job: ClaimedJob) -> bool:
        """Writes the start mark; False when the job is not ours any more. Sent again when the answer was lost."""
        return bool(await self._query("jobs/mark_started", job))

    async def _query(self, name: str, job: ClaimedJob) -> Any:
        values = {"lane": job.claim.lane, "pos": job.pos, "incarnation": job.claim.incarnation}
        async with self._lock:
            while True:
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = await self._connect()
                    return await aexecute(self._connection, Query(name, values), self._schema)
                except GONE:
                    if self._connection is not None:
                        await self._connection.close()
                        self._connection = None
                    await asyncio.sleep(0.5)
