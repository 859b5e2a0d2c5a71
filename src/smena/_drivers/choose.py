"""Finds the driver for the connection that the caller gave.

A connection is known by the module its class comes from, so that no driver is imported that the program does not use.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any, NoReturn, TypeVar

from smena._ops.operation import Operation
from smena.errors import ConfigurationError, DatabaseUnavailable, RowMoved, SchemaMissing, SchemaOutdated

T = TypeVar("T")

_SYNC = {
    "psycopg.Connection": "psycopg",
    "sqlalchemy.engine.base.Connection": "sqlalchemy",
    "sqlalchemy.orm.session.Session": "sqlalchemy",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django",
    "django.utils.connection.ConnectionProxy": "django",
}
_ASYNC = {
    "psycopg.AsyncConnection": "psycopg",
    "asyncpg.connection.Connection": "asyncpg",
    "asyncpg.pool.PoolConnectionProxy": "asyncpg",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy",
}


def run(operation: Operation[T], connection: Any, schema: str, *, whole: bool = False) -> T:
    """Runs `operation` on a sync connection, in its transaction, which is neither committed nor rolled back here.

    `whole`: where each statement would commit by itself, all of them commit together.
    """
    driver = _driver(connection, _SYNC, _ASYNC, "an async", "aenqueue() or aenqueue_many()")
    with driver.whole(connection) if whole else nullcontext():
        try:
            query = next(operation)
            while True:
                try:
                    rows = driver.execute(connection, query, schema)
                except Exception as error:
                    _raise_explained(error)
                query = operation.send(rows)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(operation: Operation[T], connection: Any, schema: str, *, whole: bool = False) -> T:
    """Runs `operation` on an async connection, in its transaction."""
    driver = _driver(connection, _ASYNC, _SYNC, "a sync", "enqueue() or enqueue_many()")
    async with await driver.awhole(connection) if whole else nullcontext():
        try:
            query = next(operation)
            while True:
                try:
                    rows = await driver.aexecute(connection, query, schema)
                except Exception as error:
                    _raise_explained(error)
                query = operation.send(rows)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _driver(connection: Any, table: dict[str, str], other: dict[str, str], of_other: str, twins: str) -> Any:
    for cls in type(connection).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name in table:
            return import_module(f"smena._drivers.{table[name]}")
        if name in other:
            raise ConfigurationError(
                f"conn= is {of_other} connection ({_kind(connection)}), which this call cannot use: call {twins}"
            )
    raise ConfigurationError(
        f"conn= takes a connection of psycopg, asyncpg, SQLAlchemy (Connection, Session and their async twins) or "
        f"Django, not {_kind(connection)}"
    )


def _kind(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"


def _raise_explained(error: Exception) -> NoReturn:
    explained = _explained(error)
    if explained is error:
        raise error
    raise explained from error


def _explained(error: Exception) -> Exception:
    """`error`, or one of ours that says more. SQLAlchemy and Django wrap the driver's own error."""
    state = sqlstate(error)
    if state == "40001":
        return RowMoved(
            "the row changed under this transaction (SQLSTATE 40001): roll back and run the whole transaction again"
        )
    if state in {"42P01", "3F000"}:
        return SchemaMissing(f"the job store is not in this database ({_first_line(error)}): run `smena db migrate`")
    if state in {"42703", "42883"}:
        return SchemaOutdated(f"the job store is of another release ({_first_line(error)}): run `smena db migrate`")
    if state in {"57P01", "57P02", "57P03", "53300", "08006", "08001"}:
        return DatabaseUnavailable(f"PostgreSQL cannot be reached now: {str(error).strip()}")
    return error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE behind an error of any driver, also when it is wrapped."""
    seen: BaseException | None = error
    for _ in range(4):
        if seen is None:
            return None
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(state, str):
            return state
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None
