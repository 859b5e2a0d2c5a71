"""Is this the store we think it is? Looked at when a worker starts, when the command line begins, and by `check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from smena._drivers.psycopg import execute
from smena._migrations import newest, pending
from smena._ops.operation import Query
from smena.errors import ConfigurationError, CopiedDatabase, SchemaMissing, SchemaOutdated, SchemaTooNew


@dataclass(frozen=True, slots=True)
class Store:
    """A store that this release may work on."""

    installation: UUID
    at_home: bool


def look(connection: psycopg.Connection[Any], schema: str, *, work: bool = False) -> Store:
    """Reads what the store is. Raises SchemaError when it does not fit; with `work`, also what forbids working on it.

    Writes nothing.
    """
    where = f"schema {schema} of database {connection.info.dbname} at {connection.info.host}"
    known = newest()
    todo = pending(connection, schema)
    there = known - len(todo) if todo else known
    if todo and todo[0].number == 1:
        raise SchemaMissing(f"there is no job store in {where}: run `smena db migrate`")
    if any(migration.phase == "pre" for migration in todo):
        raise SchemaOutdated(
            f"{where} is at migration {there:04}, this release needs {known:04}: run `smena db migrate`"
        )
    highest = connection.execute(
        sql.SQL("select max(number) from {}").format(sql.Identifier(schema, "migrations"))
    ).fetchone()
    if highest is not None and highest[0] > known:
        raise SchemaTooNew(
            f"{where} is at migration {highest[0]:04}, this release knows only {known:04}: upgrade smena"
        )
    id, at_home = execute(connection, Query("workers/installation"), schema)[0]
    if work and not at_home:
        raise CopiedDatabase(
            f"{where} was copied or restored from another database, and its jobs may be running there: "
            "if this one is to work them, run `smena db adopt --yes`"
        )
    if work:
        isolation = connection.execute("show default_transaction_isolation").fetchone()
        if isolation is not None and isolation[0] != "read committed":
            raise ConfigurationError(
                f"default_transaction_isolation is {isolation[0]!r} here; a worker needs 'read committed': "
                "set it for the worker's role or in the DSN (options=-c default_transaction_isolation=...)"
            )
    return Store(UUID(id), bool(at_home))
