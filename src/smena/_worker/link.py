"""The worker's connections. None of them waits for ever for an answer.

A dead peer that says nothing is noticed by nobody: a firewall drops packets, or a proxy in between still acknowledges
them for a server that is gone. So a statement that has had no answer for `patience` seconds is given up by shutting our
own end of the socket, after which it looks like any other lost connection: whoever waits gets an OperationalError, and
what the statement did is unknown. Cancelling the waiting task would not do: the driver then asks the silent server to
cancel, and waits for that.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from smena.database import masked
from smena.errors import DatabaseError, DatabaseUnavailable

# What a lost connection looks like. A server that turned read-only is on its way out, or not yet promoted.
GONE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    OSError,
    DatabaseError,
)

# Generic plans: a plan per claim costs more than the claim. One that was made on an empty store must serve a full one,
# so nothing is left to choose from but index scans and nested loops. A test holds the plans to what they must be.
OPTIONS = (
    "-c plan_cache_mode=force_generic_plan -c default_transaction_isolation=read\\ committed -c jit=off"
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
    # A claim that a crash of the server forgets would be made twice, under two tokens.
    " -c synchronous_commit=on"
)
_PLANS_LAST = 10.0

_CONNECT_SECONDS = 10


class Link(psycopg.AsyncConnection[Any]):
    """A connection of the worker's event loop."""

    patience = 60.0
    planned_at = float("-inf")

    async def plan_anew(self) -> None:
        """Throws old plans away, now and then: one that was made on an empty store reads too much of a full one."""
        if time.monotonic() - self.planned_at > _PLANS_LAST:
            await self.execute("discard plans")
            self.planned_at = time.monotonic()

    async def wait(self, *args: Any, **options: Any) -> Any:
        alarm = asyncio.get_running_loop().call_later(self.patience, hang_up, self)
        try:
            return await super().wait(*args, **options)
        finally:
            alarm.cancel()


class LeaseLink(psycopg.Connection[Any]):
    """The connection of the thread that keeps the lease."""

    patience = 60.0

    def wait(self, *args: Any, **options: Any) -> Any:
        alarm = threading.Timer(self.patience, hang_up, [self])
        alarm.daemon = True
        alarm.start()
        try:
            return super().wait(*args, **options)
        finally:
            alarm.cancel()


async def open_link(dsn: str, patience: float) -> Link:
    """A new connection, or DatabaseUnavailable."""
    try:
        link = await Link.connect(
            dsn,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            options=f"{conninfo_to_dict(dsn).get('options', '')} {OPTIONS}",
            application_name="smena worker",
            keepalives_idle=10,
        )
    except psycopg.OperationalError as error:
        words = " ".join(str(error).split())
        raise DatabaseUnavailable(f"PostgreSQL cannot be reached at {masked(dsn)}: {words}") from error
    link.patience = patience
    return link


def hang_up(link: Link | LeaseLink) -> None:
    """Shuts our end. Whoever waits for an answer on it gets an OperationalError at once."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=socket.dup(link.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)
