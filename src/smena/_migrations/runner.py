"""Applies the numbered files of this folder.

States: a file is applied or not; `smena.migrations` says which, in the same transaction as the file's own work.
  killed inside a file        that transaction is gone, the next run begins with the same file
  killed between two files    the next run goes on with the second
  ten processes at once       a session advisory lock admits one; the others wait, then find nothing to do
  a long reader in the way    `lock_timeout` gives up after a second, so that nobody queues behind us, and tries again

`NNNN_pre_name.sql` runs before the new release's code is started and keeps the old release working;
`NNNN_post_name.sql` runs when no old release is left. Files are never edited once released.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from smena._sql import in_schema
from smena.errors import DatabaseError, SchemaError, SchemaTooNew

_FILE = re.compile(r"(\d{4})_(pre|post)_(\w+)\.sql")
_TRIES = 60


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    phase: str
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.number:04} {self.phase:<4} {self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration and when it was applied; `applied_at` is None when it was not."""

    migration: Migration
    applied_at: str | None


def migrations() -> list[Migration]:
    """All migrations of this release, in order."""
    found = []
    for entry in resources.files(__package__).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], match[3], entry.read_text("utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def migrate(dsn: str, schema: str = "smena", *, phase: str | None = None) -> list[Migration]:
    """Brings the store to this release and returns what was applied. Safe to run from many processes at once."""
    done = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(hashtext(%s), 0)", [f"smena migrations {schema}"])
        _refuse_newer(connection, schema)
        if phase == "post" and (first := pending(connection, schema, "pre")):
            raise SchemaError(f"migration {first[0]} is still to come: run `smena db migrate --phase pre` first")
        for migration in pending(connection, schema, phase):
            _apply(connection, schema, migration)
            done.append(migration)
    return done


def status(dsn: str, schema: str = "smena") -> list[Applied]:
    """Every migration of this release and whether this database has it. Writes nothing."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        known = _applied(connection, schema)
        return [Applied(migration, known.get(migration.number, (None, None))[1]) for migration in migrations()]


def pending_sql(dsn: str | None, schema: str = "smena") -> Iterator[str]:
    """The SQL text that `migrate` would run; all of it without a DSN."""
    if dsn is None:
        todo = migrations()
    else:
        with psycopg.connect(dsn, autocommit=True) as connection:
            todo = pending(connection, schema)
    if todo and todo[0].number == 1:
        yield in_schema(_LEDGER, schema)
    for migration in todo:
        yield f"-- {migration}\nbegin;\n{in_schema(migration.text, schema)}\n{_record(migration, schema)};\ncommit;\n"


_LEDGER = """create schema if not exists smena;
create table if not exists smena.migrations (
  number int primary key,
  phase text not null,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default clock_timestamp()
);
"""


def _record(migration: Migration, schema: str) -> str:
    return in_schema(
        f"insert into smena.migrations (number, phase, name, checksum) values "
        f"({migration.number}, '{migration.phase}', '{migration.name}', '{migration.checksum}')",
        schema,
    )


def _applied(connection: psycopg.Connection[Any], schema: str) -> dict[int, tuple[str, str]]:
    exists = connection.execute("select to_regclass(%s)", [f'"{schema}".migrations']).fetchone()
    if exists is None or exists[0] is None:
        return {}
    query = sql.SQL("select number, checksum, applied_at::text from {}").format(sql.Identifier(schema, "migrations"))
    return {number: (checksum, at) for number, checksum, at in connection.execute(query)}


def newest() -> int:
    """The number of this release's last migration."""
    return max(migration.number for migration in migrations())


def pending(connection: psycopg.Connection[Any], schema: str, phase: str | None = None) -> list[Migration]:
    """The migrations that this database lacks. Writes nothing."""
    known = _applied(connection, schema)
    for migration in migrations():
        if migration.number in known and known[migration.number][0] != migration.checksum:
            raise SchemaError(
                f"migration {migration} was changed after it was applied to schema {schema}: "
                "install the release whose files were applied, or restore the file"
            )
    return [m for m in migrations() if m.number not in known and phase in (None, m.phase)]


def _refuse_newer(connection: psycopg.Connection[Any], schema: str) -> None:
    there = max(_applied(connection, schema), default=0)
    if there > newest():
        raise SchemaTooNew(
            f"schema {schema} is at migration {there:04}, this release knows {newest():04}: upgrade smena"
        )


def _apply(connection: psycopg.Connection[Any], schema: str, migration: Migration) -> None:
    for attempt in range(_TRIES):
        try:
            with connection.transaction():
                connection.execute("set local lock_timeout = '1s'")
                connection.execute(_text(in_schema(_LEDGER, schema)))
                connection.execute(_text(in_schema(migration.text, schema)))
                connection.execute(_text(_record(migration, schema)))
            return
        except psycopg.errors.LockNotAvailable:
            if attempt == _TRIES - 1:
                raise DatabaseError(
                    f"migration {migration} got no lock in {_TRIES} tries: end the long transaction that uses "
                    f"schema {schema} (see pg_stat_activity) and run it again"
                ) from None
            time.sleep(random.uniform(0.2, 1.0))


def _text(sql: str) -> LiteralString:
    """Our own files, with a schema name that was checked: as good as literal."""
    return cast(LiteralString, sql)  # type: ignore[redundant-cast]
