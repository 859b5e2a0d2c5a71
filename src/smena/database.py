"""The database that an app works on: its DSN, its schema, its own connections.

Without `conn`, an operation runs here on a connection of the app's own, and is run again when the row it wanted was
just on its way to another place. Programs use these connections from many threads and event loops, and fork:
  a thread      takes a connection of the one pool
  an event loop has a pool of its own. A loop that ended without `aclose` leaves connections behind; they are closed
                when the next loop comes, and by `close`
  a fork        leaves its parent's connections alone, neither used nor closed, and opens its own
  a restart     of the server ends idle connections; that is noticed when one is taken, and another is taken
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
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

# A pooler that gives each transaction another server connection: prepared statements are not found there.
_POOLED = (InvalidSqlStatementName, DuplicatePreparedStatement)


class StandIn(Protocol):
    """Answers operations in place of a database. `smena.testing` has the only one."""

    def run(self, operation: Operation[T]) -> T: ...
    async def arun(self, operation: Operation[T]) -> T: ...


class Database:
    """Connections to one store. Opened at first use; `close` and `aclose` end them, and the next use opens others.

    `dsn`: a libpq URL or conninfo string; None takes `SMENA_DSN`, else an embedded PostgreSQL is started.
    """

    def __init__(self, dsn: str | None = None, *, schema: str = "smena", pool_size: int = 4) -> None:
        in_schema("", schema)
        if isinstance(pool_size, bool) or not isinstance(pool_size, int) or not 1 <= pool_size <= 1000:
            raise ConfigurationError(f"pool_size={pool_size!r}: give a number of connections, 1 to 1000")
        self._given = dsn
        self.schema = schema
        self._pool_size = pool_size
        self._embedded: Server | None = None
        self._embedded_by = 0
        self._pool: ConnectionPool[Any] | None = None
        self._loops: dict[asyncio.AbstractEventLoop, _OnLoop] = {}
        self._lock = threading.Lock()
        self._prepares = True
        self.stand_in: StandIn | None = None
        _watch_forks()
        _databases.add(self)

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
                self._embedded, self._embedded_by = server, os.getpid()
                atexit.register(self._stop_embedded)
                from smena._migrations import migrate

                migrate(server.dsn, self.schema)
            return self._embedded.dsn

    @property
    def embedded(self) -> Server | None:
        """The embedded server, when one is in use."""
        return self._embedded

    def run(self, operation: Callable[[], Operation[T]], conn: Any = None, *, whole: bool = True) -> T:
        """Runs an operation in the caller's transaction, or on a connection of the app's own.

        `whole`: all or nothing of it takes effect, also where each statement commits by itself. An operation of one
        statement can do without, and saves two round trips.
        """
        if self.stand_in is not None:
            return self.stand_in.run(operation())
        if conn is not None:
            return run(operation(), conn, self.schema, whole=whole)
        for attempt in range(_TRIES):
            try:
                with self._own() as own:
                    return run(operation(), own, self.schema, whole=whole)
            except (RowMoved, *_POOLED) as error:
                if not isinstance(error, RowMoved):
                    self._prepares = False
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    async def arun(self, operation: Callable[[], Operation[T]], conn: Any = None, *, whole: bool = True) -> T:
        """The same on an async connection."""
        if self.stand_in is not None:
            return await self.stand_in.arun(operation())
        if conn is not None:
            return await arun(operation(), conn, self.schema, whole=whole)
        for attempt in range(_TRIES):
            try:
                async with self._aown() as own:
                    return await arun(operation(), own, self.schema, whole=whole)
            except (RowMoved, *_POOLED) as error:
                if not isinstance(error, RowMoved):
                    self._prepares = False
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the pool in a transaction: committed at the end, rolled back by an exception."""
        with self._own() as own, own.transaction():
            yield own

    @contextmanager
    def _own(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the pool, on which each statement commits by itself."""
        pool = self._opened()
        try:
            own = pool.getconn()
            # As often as the pool may hold connections that the server has ended.
            for _ in range(self._pool_size):
                if _is_alive(own):
                    break
                pool.putconn(own)
                own = pool.getconn()
        except PoolTimeout as error:
            raise self._unreachable(error) from error
        if not self._prepares:
            own.prepare_threshold = None
        try:
            yield own
        except psycopg.OperationalError as error:
            if own.broken:
                raise self._broken(error) from error
            raise
        finally:
            pool.putconn(own)

    @asynccontextmanager
    async def _aown(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        pool = await self._aopened()
        try:
            own = await pool.getconn()
            for _ in range(self._pool_size):
                if _is_alive(own):
                    break
                await pool.putconn(own)
                own = await pool.getconn()
        except PoolTimeout as error:
            raise self._unreachable(error) from error
        if not self._prepares:
            own.prepare_threshold = None
        try:
            yield own
        except psycopg.OperationalError as error:
            if own.broken:
                raise self._broken(error) from error
            raise
        finally:
            await pool.putconn(own)

    def _opened(self) -> ConnectionPool[Any]:
        pool = self._pool
        if pool is None:
            dsn = self.dsn
            with self._lock:
                pool = self._pool
                if pool is None:
                    # The first connection is made by hand: its error says what is wrong, a pool's only that it waited.
                    connect(dsn).close()
                    pool = self._pool = ConnectionPool(dsn, open=True, num_workers=1, **self._pool_options())
        return pool

    async def _aopened(self) -> AsyncConnectionPool[Any]:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            self._leave_ended_loops()
            here = self._loops[loop] = _OnLoop()
        if here.pool is None:
            async with here.lock:
                if here.pool is None:
                    dsn = await asyncio.to_thread(lambda: self.dsn)
                    await (await aconnect(dsn)).close()
                    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
                        dsn, open=False, num_workers=1, configure=here.note, **self._pool_options()
                    )
                    await pool.open()
                    here.pool = pool
        return here.pool

    def _pool_options(self) -> dict[str, Any]:
        return {
            "min_size": 0,
            "max_size": self._pool_size,
            "timeout": _CONNECT_TIMEOUT,
            "name": "smena",
            "kwargs": {"autocommit": True, "fallback_application_name": "smena"},
        }

    def _unreachable(self, error: Exception) -> DatabaseUnavailable:
        return DatabaseUnavailable(f"no connection to {masked(self.dsn)} within {_CONNECT_TIMEOUT:g} s: {error}")

    def _broken(self, error: Exception) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"the connection to {masked(self.dsn)} broke while it was in use, so whether the statement took effect "
            f"is not known: {' '.join(str(error).split())}"
        )

    def close(self) -> None:
        """Closes the sync connections, what ended event loops left behind, and leaves the embedded server."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        self._leave_ended_loops()
        self._stop_embedded()

    async def aclose(self) -> None:
        """Closes the async connections of the running loop, and the rest."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None and here.pool is not None:
            await here.pool.close()
        await asyncio.to_thread(self.close)

    def _leave_ended_loops(self) -> None:
        for loop, there in list(self._loops.items()):
            if loop.is_closed() and self._loops.pop(loop, None) is not None:
                there.abandon()

    def _leave_to_parent(self) -> None:
        _of_parents.append((self._pool, self._loops))
        self._pool = None
        self._loops = {}
        self._lock = threading.Lock()

    def _stop_embedded(self) -> None:
        with self._lock:
            if self._embedded is None or self._embedded_by != os.getpid():
                return  # a forked child uses its parent's server, and leaves it running
            server, self._embedded = self._embedded, None
        atexit.unregister(self._stop_embedded)
        server.stop()


class _OnLoop:
    """What belongs to one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.pool: AsyncConnectionPool[Any] | None = None
        self._connections: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()

    async def note(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connections.add(connection)

    def abandon(self) -> None:
        """Closes the connections of a loop that has ended, on which nothing can be awaited any more."""
        for connection in list(self._connections):
            connection.pgconn.finish()


def _is_alive(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """False if the server has ended this idle connection. Costs no round trip."""
    try:
        # Reads what has come, without waiting: first the server's last words, if any, then the end of the stream.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True


_databases: WeakSet[Database] = WeakSet()
# Never looked at again: their locks may be held by threads that the child does not have.
_of_parents: list[Any] = []


@cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for database in list(_databases):
        database._leave_to_parent()


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
    dsn = re.sub(r"(://[^:/@\s]*):[^/\s]*@", r"\1:***@", dsn)
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
