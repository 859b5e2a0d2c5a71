"""Django's connection, with psycopg 3 or psycopg2 below it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from smena._ops.operation import Query, Rows
from smena._sql import statement
from smena.errors import ConfigurationError


def execute(connection: Any, query: Query, schema: str) -> Rows:
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"conn= is Django's connection {connection.alias!r} to {connection.vendor}: the job store is in PostgreSQL"
        )
    with connection.cursor() as cursor:
        cursor.execute(statement(query.name, schema).named, dict(query.parameters))
        return cursor.fetchall() if cursor.description else []


def whole(connection: Any) -> AbstractContextManager[Any]:
    if not connection.get_autocommit():
        return nullcontext()
    from django.db import transaction

    atomic: AbstractContextManager[Any] = transaction.atomic(using=connection.alias)
    return atomic
