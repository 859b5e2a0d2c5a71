"""SQLAlchemy: Connection, Session and their async twins, on any PostgreSQL dialect (psycopg, psycopg2, asyncpg)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from smena._ops.operation import Query, Rows
from smena._sql import statement


def execute(connection: Any, query: Query, schema: str) -> Rows:
    result = connection.execute(text(statement(query.name, schema).colons), dict(query.parameters))
    return [tuple(row) for row in result] if result.returns_rows else []


async def aexecute(connection: Any, query: Query, schema: str) -> Rows:
    result = await connection.execute(text(statement(query.name, schema).colons), dict(query.parameters))
    return [tuple(row) for row in result] if result.returns_rows else []
