"""asyncpg. It is strict about types: every parameter is cast from text in the SQL where Python has no exact match."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from smena._ops.operation import Query, Rows
from smena._sql import statement


async def aexecute(connection: Any, query: Query, schema: str) -> Rows:
    found = statement(query.name, schema)
    rows: Rows = await connection.fetch(found.numbered, *[query.parameters[name] for name in found.names])
    return rows


async def awhole(connection: Any) -> AbstractAsyncContextManager[Any]:
    if connection.is_in_transaction():
        return nullcontext()
    transaction: AbstractAsyncContextManager[Any] = connection.transaction()
    return transaction
