"""The database that an app works on: its DSN, its schema, its own connections.

Without `conn`, an operation runs here on a connection of the app's own, and is run again when the row it wanted was
just on its way to another place. Programs use these connections from many threads and event loops, and fork:
  threads        share a few connections
  an event loop  has as many of its own; what a loop that has ended leaves behind is closed when another one comes
  a forked child leaves its parent's connections alone, and opens its own
No thread and no task works in the background. A pool that grows by a task was seen to keep `asyncio.run` from ending.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName

from smena._drivers import arun, run
from smena._ops.operation import Operation
from smena._sql import in_schema
from smena.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, RowMoved
from smena.kept import Kept

if TYPE_CHECKING:
    from smena.embedded import Server

T = TypeVar("T")

_TRIES = 5
_CONNECT_TIMEOUT = 10.0
_PATIENCE = 10.0

# One statement costs one round trip; where several belong together, `whole` says so.
_OWN = {"autocommit": True, "fallback_application_name": "smena"}

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
        self._lock = threading.Lock()
        self._threads = _Threads(pool_size)
        self._loops: dict[asyncio.AbstractEventLoop, _OnLoop] = {}
        self._prepares = True
        self.stand_in: StandIn | None = None
        _watch_forks()
        _databases.add(self)
        weakref.finalize(self, _close_all, self._threads, self._loops)

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
        """A connection on which each statement commits by itself."""
        gate, kept = self._threads.gate, self._threads.kept
        if not gate.acquire(timeout=_PATIENCE):
            raise self._too_many()
        try:
            own = kept.take() or connect(self.dsn, **_OWN)
            try:
                if not self._prepares:
                    own.prepare_threshold = None
                yield own
            except psycopg.OperationalError as error:
                if own.broken:
                    raise self._broken(error) from error
                raise
            finally:
                kept.give(own)
        finally:
            gate.release()

    @asynccontextmanager
    async def _aown(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        here = self._here()
        try:
            async with asyncio.timeout(_PATIENCE):
                await here.gate.acquire()
        except TimeoutError:
            raise self._too_many() from None
        try:
            own = here.kept.take()
            if own is None:
                own = await aconnect(await self._adsn(), **_OWN)
            try:
                if not self._prepares:
                    own.prepare_threshold = None
                yield own
            except psycopg.OperationalError as error:
                if own.broken:
                    raise self._broken(error) from error
                raise
            finally:
                here.kept.give(own)
        finally:
            here.gate.release()

    async def _adsn(self) -> str:
        if self._given or os.environ.get("SMENA_DSN"):
            return self.dsn
        # Starting an embedded server takes seconds.
        return await asyncio.to_thread(lambda: self.dsn)

    def _here(self) -> _OnLoop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            self._leave_ended_loops()
            here = self._loops[loop] = _OnLoop(self._pool_size)
        return here

    def _leave_ended_loops(self) -> None:
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            if (there := self._loops.pop(loop, None)) is not None:
                there.kept.close()

    def _too_many(self) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"all {self._pool_size} connections of the app to {masked(self.dsn)} have been in use for {_PATIENCE:g} s: "
            "give Smena a larger pool_size="
        )

    def _broken(self, error: Exception) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"the connection to {masked(self.dsn)} broke while it was in use, so whether the statement took effect "
            f"is not known: {' '.join(str(error).split())}"
        )

    def close(self) -> None:
        """Closes the app's connections, those in use when they are given back, and leaves the embedded server."""
        _close_all(self._threads, self._loops)
        self._stop_embedded()

    async def aclose(self) -> None:
        """`close` for an async program."""
        await asyncio.to_thread(self.close)

    def _leave_to_parent(self) -> None:
        self._threads.kept.leave_to_parent()
        for there in self._loops.values():
            there.kept.leave_to_parent()
        self._loops.clear()
        # The parent's other threads may have held these, and do not exist here.
        self._threads.gate = threading.BoundedSemaphore(self._pool_size)
        self._lock = threading.Lock()

    def _stop_embedded(self) -> None:
        with self._lock:
            if self._embedded is None or self._embedded_by != os.getpid():
                return  # a forked child uses its parent's server, and leaves it running
            server, self._embedded = self._embedded, None
        atexit.unregister(self._stop_embedded)
        server.stop()


class _Threads:
    """The connections that the threads share."""

    def __init__(self, most: int) -> None:
        self.gate = threading.BoundedSemaphore(most)
        self.kept: Kept[psycopg.Connection[Any]] = Kept()


class _OnLoop:
    """The connections of one event loop."""

    def __init__(self, most: int) -> None:
        self.gate = asyncio.BoundedSemaphore(most)
        self.kept: Kept[psycopg.AsyncConnection[Any]] = Kept()


def _close_all(threads: _Threads, loops: dict[asyncio.AbstractEventLoop, _OnLoop]) -> None:
    kept, threads.kept = threads.kept, Kept()
    kept.close()
    with suppress(KeyError):
        while True:
            loops.popitem()[1].kept.close()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()


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
