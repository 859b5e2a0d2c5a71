"""The database that an app works on: its DSN, its schema, its own connections.

Without `conn`, an operation runs here in a short transaction of its own, and is run again when the row it wanted was
just on its way to another place.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from smena._drivers import arun, run
from smena._ops.operation import Operation
from smena._sql import in_schema
from smena.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, RowMoved

if TYPE_CHECKING:
    from smena.embedded import Server

T = TypeVar("T")

_TRIES = 5
_CONNECT_TIMEOUT = 10.0


class Database:
    """Connections to one store. Opened at first use; `close` and `aclose` end them.

    `dsn`: a libpq URL or conninfo string; None takes `SMENA_DSN`, else an embedded PostgreSQL is started.
    """

    def __init__(self, dsn: str | None = None, *, schema: str = "smena", pool_size: int = 4) -> None:
        in_schema("", schema)
        self._given = dsn
        self.schema = schema
        self._pool_size = pool_size
        self._embedded: Server | None = None
        self._pool: ConnectionPool[Any] | None = None
        self._apools: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[Any]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def dsn(self) -> str:
        """The DSN in use. Starts the embedded PostgreSQL when none was given."""
        dsn = self._given or os.environ.get("SMENA_DSN")
        if dsn:
            checked_dsn(dsn)
            return dsn
        with self._lock:
            if self._embedded is None:
                from smena import embedded

                server = embedded.server()
                server.start()
                self._embedded = server
                atexit.register(self._stop_embedded)
                from smena._migrations import migrate

                migrate(server.dsn, self.schema)
            return self._embedded.dsn

    @property
    def embedded(self) -> Server | None:
        """The embedded server, when one is in use."""
        return self._embedded

    def run(self, operation: Callable[[], Operation[T]], conn: Any = None) -> T:
        """Runs an operation in the caller's transaction, or in one of its own."""
        if conn is not None:
            return run(operation(), conn, self.schema)
        for attempt in range(_TRIES):
            try:
                with self.connection() as own:
                    return run(operation(), own, self.schema)
            except RowMoved:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    async def arun(self, operation: Callable[[], Operation[T]], conn: Any = None) -> T:
        """The same on an async connection."""
        if conn is not None:
            return await arun(operation(), conn, self.schema)
        for attempt in range(_TRIES):
            try:
                async with (await self._apool()).connection() as own:
                    return await arun(operation(), own, self.schema)
            except RowMoved:
                if attempt == _TRIES - 1:
                    raise
            except PoolTimeout as error:
                raise self._unreachable(error) from error
        raise AssertionError

    def connection(self) -> Any:
        """A connection of the pool, as a context manager: committed at the end, rolled back by an exception."""
        if self._pool is None:
            dsn = self.dsn
            with self._lock:
                if self._pool is None:
                    # The first connection is made by hand: its error says what is wrong, a pool's only that it waited.
                    connect(dsn).close()
                    self._pool = ConnectionPool(
                        dsn, min_size=0, max_size=self._pool_size, open=True, timeout=_CONNECT_TIMEOUT, name="smena"
                    )
        return self._pool.connection()

    async def _apool(self) -> AsyncConnectionPool[Any]:
        loop = asyncio.get_running_loop()
        pool = self._apools.get(loop)
        if pool is None:
            dsn = await asyncio.to_thread(lambda: self.dsn)
            await (await aconnect(dsn)).close()
            pool = AsyncConnectionPool(
                dsn, min_size=0, max_size=self._pool_size, open=False, timeout=_CONNECT_TIMEOUT, name="smena"
            )
            await pool.open()
            self._apools[loop] = pool
        return pool

    def _unreachable(self, error: Exception) -> DatabaseUnavailable:
        return DatabaseUnavailable(f"no connection to {masked(self.dsn)} within {_CONNECT_TIMEOUT:g} s: {error}")

    def close(self) -> None:
        """Closes the sync connections and leaves the embedded server."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._stop_embedded()

    async def aclose(self) -> None:
        """Closes the async connections of the running loop, and the rest."""
        pool = self._apools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
        await asyncio.to_thread(self.close)

    def _stop_embedded(self) -> None:
        with self._lock:
            server, self._embedded = self._embedded, None
        if server is not None:
            atexit.unregister(self._stop_embedded)
            server.stop()


def checked_dsn(dsn: str) -> None:
    """Raises ConfigurationError for a DSN that libpq cannot read."""
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise ConfigurationError(
            f"the DSN {masked(dsn)} cannot be read ({str(error).strip()}): "
            "it looks like postgresql://user:password@host:5432/database or like 'host=… dbname=…'"
        ) from None


def masked(dsn: str) -> str:
    """The DSN without its password."""
    dsn = re.sub(r"(://[^:/@\s]*):[^@/\s]*@", r"\1:***@", dsn)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", dsn, flags=re.IGNORECASE)


def connect(dsn: str, **options: Any) -> psycopg.Connection[Any]:
    """A new connection, or DatabaseUnavailable with the server's own words."""
    try:
        return psycopg.connect(dsn, connect_timeout=int(_CONNECT_TIMEOUT), **options)
    except psycopg.OperationalError as error:
        raise _refused(dsn, error) from error


async def aconnect(dsn: str, **options: Any) -> psycopg.AsyncConnection[Any]:
    """The same, async."""
    try:
        return await psycopg.AsyncConnection.connect(dsn, connect_timeout=int(_CONNECT_TIMEOUT), **options)
    except psycopg.OperationalError as error:
        raise _refused(dsn, error) from error


def _refused(dsn: str, error: Exception) -> DatabaseError:
    text = " ".join(str(error).split())
    # A wrong password or database will not heal by waiting; libpq gives no SQLSTATE for a failed connection.
    if re.search(r"does not exist|authentication failed|no pg_hba.conf entry|permission denied", text):
        return DatabaseRefused(f"PostgreSQL refused {masked(dsn)}: {text}")
    return DatabaseUnavailable(f"PostgreSQL cannot be reached at {masked(dsn)}: {text}")


class DatabaseRefused(DatabaseError, ConfigurationError):
    """The server answered and refused the DSN."""

    exit_code = 2
