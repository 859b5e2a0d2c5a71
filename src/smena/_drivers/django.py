"""Django's connection, with psycopg 3 or psycopg2 below it."""

from __future__ import annotations

from typing import Any

from smena._ops.operation import Query, Rows
from smena._sql import statement


def execute(connection: Any, query: Query, schema: str) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(statement(query.name, schema).named, dict(query.parameters))
        return cursor.fetchall() if cursor.description else []
