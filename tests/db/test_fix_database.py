"""The fixtures on which every other database test stands."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict

from fix_database import dsn_of

HOME = """
    SELECT i.database_oid = d.oid::bigint AND i.system_identifier = c.system_identifier
    FROM smena.installation i, pg_control_system() c, pg_database d
    WHERE d.datname = current_database()
"""


@pytest.mark.smoke
def test_database_is_migrated_and_knows_itself_as_home(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute(HOME).fetchall() == [(True,)]
        assert connection.execute("SELECT count(*) FROM smena.jobs").fetchall() == [(0,)]


@pytest.mark.parametrize("visit", [1, 2])
def test_no_test_sees_what_another_wrote(database: str, visit: int) -> None:
    with psycopg.connect(database) as connection:
        # Fails in the second visit if it came to the same database.
        connection.execute("CREATE TABLE visited ()")


def test_empty_database_was_never_migrated(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regnamespace('smena')").fetchall() == [(None,)]


def test_dsn_is_read_alike_by_every_driver(empty_database: str) -> None:
    async def through_asyncpg() -> object:
        connection = await asyncpg.connect(empty_database)
        try:
            return await connection.fetchval("SELECT current_database()")
        finally:
            await connection.close()

    engine = sqlalchemy.create_engine(empty_database.replace("postgresql:", "postgresql+psycopg:"))
    with psycopg.connect(empty_database) as plain, engine.connect() as through_sqlalchemy:
        name = plain.info.dbname
        assert through_sqlalchemy.scalar(sqlalchemy.text("SELECT current_database()")) == name
    engine.dispose()
    assert asyncio.run(through_asyncpg()) == name


@pytest.mark.parametrize(
    "server",
    [
        "host=/var/run/postgresql port=5433 user=some dbname=postgres",
        "postgresql://some@/postgres?host=/var/run/postgresql&port=5433",
        "postgresql://some:p%40ss@127.0.0.1:5433/postgres?sslmode=disable",
        "host=127.0.0.1",
        r"host='/a folder' user='so me' password='it\'s + 5 %'",
    ],
)
def test_dsn_of_changes_the_database_and_nothing_else(server: str) -> None:
    assert conninfo_to_dict(dsn_of(server, "other")) == conninfo_to_dict(server) | {"dbname": "other"}
