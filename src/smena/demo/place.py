"""Where the demo's data live: two schemas of its own, in the embedded PostgreSQL or in a database that was named.

States of a database: without the schemas; with those of a running demo, which holds an advisory lock as long as it
lives; with those of an earlier demo that was killed or told to keep them. The last are dropped by the next demo, known
by the comment on them. A schema of that name without the comment is somebody else's, and the demo refuses to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from smena import embedded
from smena._migrations import migrate
from smena.database import checked_dsn, connect, masked
from smena.errors import ConfigurationError, DatabaseError

SHOP = "smena_demo_shop"
_MARK = "made by smena demo, which drops it again"

# A purchase and its job are stored together; `job` is the job's number in the store.
_TABLE = """create table {}.purchases (
  number int primary key,
  customer int not null,
  day date not null,
  quantity int not null,
  amount numeric(10, 2) not null,
  job bigint not null unique
)"""


@dataclass(frozen=True, slots=True)
class Place:
    """A fresh store and an empty table of purchases. `dsn` is None for the embedded server, which workers join."""

    connection: psycopg.Connection[Any]
    dsn: str | None
    store: str
    described: str


@contextmanager
def fresh_place(dsn: str | None, store: str, *, keep: bool) -> Iterator[Place]:
    """Makes the schema `store` and that of the shop, and drops them in the end unless they are to be kept."""
    with ExitStack() as stack:
        if dsn is None:
            server = stack.enter_context(embedded.server())
            address, described = server.dsn, server.describe()
        else:
            checked_dsn(dsn)
            address, described = dsn, f"using PostgreSQL at {masked(dsn)}"
        connection = stack.enter_context(connect(address, autocommit=True, application_name="smena demo"))
        connection.execute("set lock_timeout = '10s'")
        _lock(connection, described)
        try:
            _make(connection, address, store)
            yield Place(connection, dsn, store, described)
        finally:
            if not keep:
                _drop_at_the_end(address, store)


def _lock(connection: psycopg.Connection[Any], described: str) -> None:
    taken = connection.execute("select pg_try_advisory_lock(hashtext('smena demo'), 0)").fetchone()
    if not taken or not taken[0]:
        raise ConfigurationError(
            f"another `smena demo` is {described}: wait until it has ended, or name another database"
        )


def _make(connection: psycopg.Connection[Any], dsn: str, store: str) -> None:
    try:
        _drop(connection, store)
        for schema in (store, SHOP):
            connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
            connection.execute(sql.SQL("comment on schema {} is {}").format(sql.Identifier(schema), _MARK))
        migrate(dsn, store)
        connection.execute(sql.SQL(_TABLE).format(sql.Identifier(SHOP)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"the demo makes the schemas {store} and {SHOP} in {masked(dsn)}, and may not ({str(error).strip()}): "
            "give the role CREATE on the database, name another one, or leave --dsn out for an embedded PostgreSQL"
        ) from error
    except psycopg.Error as error:
        raise DatabaseError(f"the demo's schemas could not be made in {masked(dsn)}: {str(error).strip()}") from error


def _drop(connection: psycopg.Connection[Any], store: str) -> None:
    """Drops what a demo has made, and nothing else."""
    found = connection.execute(
        "select nspname, obj_description(oid, 'pg_namespace') from pg_namespace where nspname = any(%s)",
        [[store, SHOP]],
    ).fetchall()
    for schema, comment in found:
        if comment != _MARK:
            raise ConfigurationError(
                f"there is a schema {schema} that `smena demo` did not make: rename it, or name another database"
            )
    for schema, _ in found:
        connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))


def _drop_at_the_end(dsn: str, store: str) -> None:
    # On a connection of its own: the demo's own one may be in the middle of something when it is interrupted.
    try:
        with connect(dsn, autocommit=True, application_name="smena demo") as connection:
            connection.execute("set lock_timeout = '10s'")
            _drop(connection, store)
    except (psycopg.Error, DatabaseError, ConfigurationError):
        # The server is gone, or somebody looks at the tables. The next demo drops them; this one has its own result.
        pass
