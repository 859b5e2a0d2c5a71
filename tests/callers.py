"""Programs with a transaction of their own, one for each library whose connections `conn=` takes, seen alike."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from smena import Enqueued, Task


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test, and fails it if it leaves a task behind."""

    async def checked(*args: Any, **kwargs: Any) -> None:
        await test(*args, **kwargs)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(checked(*args, **kwargs))

    return run


class Caller:
    """A connection in a transaction, `conn`, which the caller commits, rolls back, or undoes in part."""

    asynchronous = True

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    async def enqueue(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Enqueued:
        if self.asynchronous:
            return await task.aenqueue(*args, conn=self.conn, **kwargs)
        return task.enqueue(*args, conn=self.conn, **kwargs)

    async def enqueue_many(self, task: Task[..., Any], calls: Any) -> list[Enqueued]:
        if self.asynchronous:
            return await task.aenqueue_many(calls, conn=self.conn)
        return task.enqueue_many(calls, conn=self.conn)

    async def value(self, query: str) -> Any:
        """One value, read in the transaction."""
        raise NotImplementedError

    async def execute(self, statement: str) -> None:
        """A statement without rows, in the transaction."""
        raise NotImplementedError

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()

    def undone(self) -> AbstractAsyncContextManager[Any]:
        """A savepoint that is rolled back to, as the library does it."""
        raise NotImplementedError


class SyncCaller(Caller):
    asynchronous = False

    async def commit(self) -> None:
        self.conn.commit()

    async def rollback(self) -> None:
        self.conn.rollback()


class Psycopg(SyncCaller):
    async def execute(self, statement: str) -> None:
        self.conn.execute(statement)

    async def value(self, query: str) -> Any:
        return self.conn.execute(query).fetchone()[0]

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        with self.conn.transaction(force_rollback=True):
            yield


class AsyncPsycopg(Caller):
    async def execute(self, statement: str) -> None:
        await self.conn.execute(statement)

    async def value(self, query: str) -> Any:
        return (await (await self.conn.execute(query)).fetchone())[0]

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        async with self.conn.transaction(force_rollback=True):
            yield


class Asyncpg(Caller):
    def __init__(self, conn: Any) -> None:
        super().__init__(conn)
        self.transaction: Any = None

    async def execute(self, statement: str) -> None:
        await self.conn.execute(statement)

    async def value(self, query: str) -> Any:
        return await self.conn.fetchval(query)

    async def commit(self) -> None:
        await self.transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self.transaction.rollback()
        await self.begin()

    async def begin(self) -> None:
        self.transaction = self.conn.transaction()
        await self.transaction.start()

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = self.conn.transaction()
        await inner.start()
        yield
        await inner.rollback()


class Alchemy(SyncCaller):
    async def execute(self, statement: str) -> None:
        self.conn.execute(sa.text(statement))

    async def value(self, query: str) -> Any:
        return self.conn.execute(sa.text(query)).scalar_one()

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = self.conn.begin_nested()
        yield
        inner.rollback()


class AsyncAlchemy(Caller):
    async def execute(self, statement: str) -> None:
        await self.conn.execute(sa.text(statement))

    async def value(self, query: str) -> Any:
        return (await self.conn.execute(sa.text(query))).scalar_one()

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        inner = await self.conn.begin_nested()
        yield
        await inner.rollback()


class Django(SyncCaller):
    def __init__(self, conn: Any) -> None:
        super().__init__(conn)
        self.begin()

    def begin(self) -> None:
        from django.db import transaction

        self.atomic: Any = transaction.atomic(using=self.conn.alias)
        self.atomic.__enter__()

    async def commit(self) -> None:
        self.atomic.__exit__(None, None, None)
        self.begin()

    async def rollback(self) -> None:
        self.conn.set_rollback(True)
        await self.commit()

    async def execute(self, statement: str) -> None:
        with self.conn.cursor() as cursor:
            cursor.execute(statement)

    async def value(self, query: str) -> Any:
        with self.conn.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[None]:
        from django.db import transaction

        with transaction.atomic(using=self.conn.alias):
            yield
            self.conn.set_rollback(True)


@asynccontextmanager
async def _psycopg(dsn: str) -> AsyncIterator[Caller]:
    with closing(psycopg.connect(dsn)) as connection:
        yield Psycopg(connection)


@asynccontextmanager
async def _psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(dsn)
    try:
        yield AsyncPsycopg(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    try:
        caller = Asyncpg(connection)
        await caller.begin()
        yield caller
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(dsn, min_size=0, max_size=1) as pool, pool.acquire() as proxy:
        caller = Asyncpg(proxy)
        await caller.begin()
        yield caller


def _sync_alchemy(driver: str, session: Callable[[sa.Engine], Any]) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Caller]:
        engine = sa.create_engine(sa.make_url(dsn).set(drivername=f"postgresql+{driver}"), poolclass=NullPool)
        with closing(session(engine)) as conn:
            yield Alchemy(conn)
        engine.dispose()

    return opened


def _async_alchemy(driver: str, session: type[AsyncConnection | AsyncSession]) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sa.make_url(dsn).set(drivername=f"postgresql+{driver}"), poolclass=NullPool)
        async with engine.connect() if session is AsyncConnection else AsyncSession(engine) as conn:
            yield AsyncAlchemy(conn)
        await engine.dispose()

    return opened


def django_connection(dsn: str) -> Any:
    """Django's connection to this database, under an alias of its own. Close it."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure()
        django.setup()
    parts = conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "HOST": parts["host"],
        "PORT": parts.get("port", ""),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
    }
    connections.databases["enqueue"] = connections.configure_settings({"default": {}, "enqueue": database})["enqueue"]
    if hasattr(connections._connections, "enqueue"):
        del connections["enqueue"]
    return connections["enqueue"]


@asynccontextmanager
async def _django(dsn: str) -> AsyncIterator[Caller]:
    # Django refuses its sync connection on a running loop, unless told: the tests' loop serves nobody else.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    connection = django_connection(dsn)
    try:
        yield Django(connection)
    finally:
        connection.close()
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Caller]]] = {
    "psycopg": _psycopg,
    "psycopg-async": _psycopg_async,
    "asyncpg": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
    "sqlalchemy-connection": _sync_alchemy("psycopg", lambda engine: engine.connect()),
    "sqlalchemy-connection-psycopg2": _sync_alchemy("psycopg2", lambda engine: engine.connect()),
    "sqlalchemy-session": _sync_alchemy("psycopg", Session),
    "sqlalchemy-session-psycopg2": _sync_alchemy("psycopg2", Session),
    "sqlalchemy-scoped-session": _sync_alchemy("psycopg", lambda engine: scoped_session(sessionmaker(engine))),
    "sqlalchemy-async-connection": _async_alchemy("psycopg", AsyncConnection),
    "sqlalchemy-async-connection-asyncpg": _async_alchemy("asyncpg", AsyncConnection),
    "sqlalchemy-async-session": _async_alchemy("psycopg", AsyncSession),
    "sqlalchemy-async-session-asyncpg": _async_alchemy("asyncpg", AsyncSession),
    "django": _django,
}
