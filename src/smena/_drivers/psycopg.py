"""psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

from smena._ops.operation import Query, Rows
from smena._sql import statement


def execute(connection: psycopg.Connection[Any], query: Query, schema: str) -> Rows:
    found = statement(query.name, schema)
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(found.numbered.encode(), [query.parameters[name] for name in found.names])
        return cursor.fetchall() if cursor.description else []


async def aexecute(connection: psycopg.AsyncConnection[Any], query: Query, schema: str) -> Rows:
    found = statement(query.name, schema)
    async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(found.numbered.encode(), [query.parameters[name] for name in found.names])
        return await cursor.fetchall() if cursor.description else []
