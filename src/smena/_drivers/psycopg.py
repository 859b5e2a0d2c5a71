"""psycopg 3, sync and async."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from smena._ops.operation import Query, Rows
from smena._sql import statement


def execute(connection: psycopg.Connection[Any], query: Query, schema: str) -> Rows:
    found = statement(query.name, schema)
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(found.numbered.encode(), [query.parameters[name] for name in found.names])
        if not _in_pipeline(connection):
            return cursor.fetchall() if cursor.description else []
        try:
            return cursor.fetchall()
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:
                raise
            return []


async def aexecute(connection: psycopg.AsyncConnection[Any], query: Query, schema: str) -> Rows:
    found = statement(query.name, schema)
    async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(found.numbered.encode(), [query.parameters[name] for name in found.names])
        if not _in_pipeline(connection):
            return await cursor.fetchall() if cursor.description else []
        try:
            return await cursor.fetchall()
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:
                raise
            return []


def whole(connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
    return connection.transaction() if _commits_each(connection) else nullcontext()


async def awhole(connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
    return connection.transaction() if _commits_each(connection) else nullcontext()


def _commits_each(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # Inside a pipeline nothing commits before its next sync, and we send none.
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    return connection.autocommit and idle and not _in_pipeline(connection)


def _in_pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # In a pipeline of the caller a cursor knows nothing of its result before the result is fetched.
    return connection.pgconn.pipeline_status != PipelineStatus.OFF
