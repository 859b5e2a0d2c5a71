"""SQLAlchemy: Connection, Session and their async twins, on any PostgreSQL dialect (psycopg, psycopg2, asyncpg)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import cache
from typing import Any

from sqlalchemy import TextClause, text

from smena._ops.operation import Query, Rows
from smena._sql import statement
from smena.errors import ConfigurationError

_NUMBER = re.compile(r"\$(\d+)")

# A connection that streams its results would put a cursor around each statement, which an INSERT does not allow.
_PLAIN = {"stream_results": False, "yield_per": None}


def execute(connection: Any, query: Query, schema: str) -> Rows:
    _refuse_others(connection)
    result = connection.execute(_text(query.name, schema), dict(query.parameters), execution_options=_PLAIN)
    return [tuple(row) for row in result] if result.returns_rows else []


async def aexecute(connection: Any, query: Query, schema: str) -> Rows:
    _refuse_others(connection)
    result = await connection.execute(_text(query.name, schema), dict(query.parameters), execution_options=_PLAIN)
    return [tuple(row) for row in result] if result.returns_rows else []


def whole(connection: Any) -> AbstractContextManager[Any]:
    _refuse_others(connection)
    below = connection.connection() if _is_session(connection) else connection
    return _transaction(below) if _commits_each(below) else nullcontext()


async def awhole(connection: Any) -> AbstractAsyncContextManager[Any]:
    _refuse_others(connection)
    below = await connection.connection() if _is_session(connection) else connection
    return _atransaction(below) if _commits_each(below.sync_connection) else nullcontext()


@cache
def _text(name: str, schema: str) -> TextClause:
    found = statement(name, schema)
    # In parentheses: SQLAlchemy takes `:name::int`, a parameter with a cast, for no parameter.
    return text(_NUMBER.sub(lambda match: f"(:{found.names[int(match[1]) - 1]})", found.numbered))


def _is_session(connection: Any) -> bool:
    return hasattr(connection, "get_bind")


def _refuse_others(connection: Any) -> None:
    dialect = (connection.get_bind() if _is_session(connection) else connection).dialect
    if dialect.name != "postgresql":
        raise ConfigurationError(
            f"conn= is SQLAlchemy's {type(connection).__name__} on {dialect.name}: the job store is in PostgreSQL"
        )


def _commits_each(connection: Any) -> bool:
    """Whether the engine or the connection has isolation level AUTOCOMMIT, and no transaction was begun by hand."""
    held = connection.connection
    if not held.dbapi_connection.autocommit:
        return False
    driver = held.driver_connection
    if hasattr(driver, "is_in_transaction"):
        return not driver.is_in_transaction()
    return bool(driver.info.transaction_status == 0)  # idle, the same number in psycopg and psycopg2


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    connection.execute(text("BEGIN"))
    try:
        yield
    except BaseException:
        connection.execute(text("ROLLBACK"))
        raise
    connection.execute(text("COMMIT"))


@asynccontextmanager
async def _atransaction(connection: Any) -> AsyncIterator[None]:
    await connection.execute(text("BEGIN"))
    try:
        yield
    except BaseException:
        await connection.execute(text("ROLLBACK"))
        raise
    await connection.execute(text("COMMIT"))
