"""A duty is one `tick` that a test can call, and a loop that calls it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg

from smena import telemetry
from smena._worker.link import Link
from smena.errors import DatabaseError

Connection = psycopg.AsyncConnection[Any]


class Duty(Protocol):
    """One background duty. `tick` does what is due and returns how many seconds the next one may wait."""

    name: str

    async def tick(self, connection: Connection) -> float: ...


class Duties:
    """Runs duties in turn on one connection, while `mine()` says so."""

    def __init__(self, duties: Sequence[Duty], connect: Callable[[], Any], mine: Callable[[], bool]) -> None:
        self._duties = duties
        self._connect = connect
        self._mine = mine
        self._due = dict.fromkeys((duty.name for duty in duties), 0.0)

    async def run(self) -> None:
        """Runs for as long as the process lives. A tick that raises is told of and comes again."""
        connection: Link | None = None
        try:
            while True:
                if not self._mine():
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(0.25)
                    continue
                try:
                    if connection is None or connection.closed:
                        connection = await self._connect()
                    await connection.plan_anew()
                    await self._turn(connection)
                except (psycopg.OperationalError, psycopg.InterfaceError, OSError, DatabaseError) as error:
                    telemetry.emit("database.lost", part="duties", error=str(error).strip())
                    if connection is not None:
                        await connection.close()
                    connection = None
                    await asyncio.sleep(random.uniform(0.5, 1.5))
        finally:
            if connection is not None:
                await connection.close()

    async def _turn(self, connection: Connection) -> None:
        for duty in self._duties:
            if time.monotonic() < self._due[duty.name]:
                continue
            try:
                pause = await duty.tick(connection)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                pause = 0.05  # a row moved under the tick: nothing was written, and the next one finds it
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                pause = 1.0
            except psycopg.OperationalError:
                raise
            except Exception as error:
                telemetry.emit("duty.failed", duty=duty.name, error=f"{type(error).__name__}: {error}")
                pause = 1.0
            self._due[duty.name] = time.monotonic() + pause
        await asyncio.sleep(max(0.0, min(self._due.values()) - time.monotonic()))
