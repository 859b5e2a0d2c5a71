"""A PostgreSQL server for a test run, and a database of its own for each test.

The server is the one that SMENA_TEST_DSN names, else an embedded one that forgets everything at the end. The schema is
migrated once, into a template; a test's database is a copy of it, which costs a fraction of a migration. The copies use
PostgreSQL's own default strategy (wal_log): measured, it is the faster one on a durable server, and no slower on ours.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from smena import _migrations
from smena.database import checked_dsn

if TYPE_CHECKING:
    from smena.app import Smena


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The DSN of a server on which tests may make and drop databases; it names no database of a test.

    An embedded server keeps its data in `folder`, as long as it runs.
    """
    if dsn := os.environ.get("SMENA_TEST_DSN"):
        yield dsn
        return
    from smena import embedded

    with embedded.server(folder, durable=False) as own:
        yield own.dsn


@contextmanager
def template(server_dsn: str) -> Iterator[str]:
    """The name of a migrated database to which nobody may connect, so that it can always be copied."""
    with _made(server_dsn, "template0") as name:
        _migrations.migrate(dsn_of(server_dsn, name))
        _run(server_dsn, "ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", name)
        yield name


@contextmanager
def copy(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN (a `postgresql://` address) of a fresh, migrated, empty database."""
    with _made(server_dsn, template) as name:
        dsn = dsn_of(server_dsn, name)
        # The copy knows the template as its home; a worker would refuse it as a copied database, rightly.
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "UPDATE smena.installation SET id = gen_random_uuid(), database_oid ="
                " (SELECT oid::bigint FROM pg_database WHERE datname = current_database())"
            )
        yield dsn


@contextmanager
def empty(server_dsn: str) -> Iterator[str]:
    """The DSN (a `postgresql://` address) of a fresh database that was never migrated."""
    with _made(server_dsn, "template0") as name:
        yield dsn_of(server_dsn, name)


@contextmanager
def on_database(app: Smena, dsn: str) -> Iterator[Smena]:
    """The app works on the database of this DSN. Connections to the other one are closed, before and after.

    >>> with on_database(app, "postgresql://localhost/test"):
    ...     charge.enqueue(17, Decimal("29.33"))
    """
    database = app.database
    checked_dsn(dsn)
    before = database._given
    database.close()
    database._given = dsn
    try:
        yield app
    finally:
        database.close()
        database._given = before


def dsn_of(server_dsn: str, database: str) -> str:
    """`server_dsn` with another database, as an address: the one form that psycopg, asyncpg and SQLAlchemy all read."""
    options = {key: str(value) for key, value in conninfo_to_dict(server_dsn).items() if value is not None}
    options.pop("dbname", None)
    user, password = options.pop("user", None), options.pop("password", None)
    login = quote(user, safe="") if user else ""
    if password:
        login += ":" + quote(password, safe="")
    return (
        f"postgresql://{login}{'@' if login else ''}/{quote(database, safe='')}?{urlencode(options, quote_via=quote)}"
    )


@contextmanager
def _made(server_dsn: str, template: str) -> Iterator[str]:
    # A random name: two sessions may share one server, and a killed one leaves its databases behind.
    name = f"smena_test_{secrets.token_hex(6)}"
    _run(server_dsn, "CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield name
    finally:
        # FORCE: a test that failed halfway, or killed its worker, may leave connections.
        _run(server_dsn, "DROP DATABASE {} WITH (FORCE)", name)


def _run(server_dsn: str, statement: str, *names: str) -> None:
    # Each in a connection of its own: a test may restart the server between two of them.
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
