"""Migrations: the same store from every direction, and nothing lost on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from smena import _migrations
from smena._migrations import runner
from smena._migrations.describe import describe
from smena.errors import SchemaError, SchemaMissing, SchemaOutdated, SchemaTooNew
from smena.store import look

DUMP = Path(_migrations.__file__).parent / "schema.txt"
MIGRATE = "import sys; from smena._migrations import migrate; print(len(migrate(sys.argv[1])), flush=True)"


def _shape(dsn: str, schema: str = "smena") -> str:
    with psycopg.connect(dsn) as connection:
        connection.execute("set search_path to ''")
        return describe(connection, schema)


def _child(dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", MIGRATE, dsn], stdout=subprocess.PIPE, text=True)


def test_a_fresh_store_is_what_the_dump_says(empty_database: str) -> None:
    _migrations.migrate(empty_database)
    assert DUMP.read_text() == _shape(empty_database)


def test_the_printed_sql_makes_the_same_store(empty_database: str) -> None:
    script = "".join(_migrations.pending_sql(None))
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(script.encode())
    assert DUMP.read_text() == _shape(empty_database)
    assert [] == _migrations.migrate(empty_database)


def test_ten_processes_at_once_migrate_once(empty_database: str) -> None:
    children = [_child(empty_database) for _ in range(10)]
    applied = [int(child.communicate(timeout=60)[0]) for child in children]
    assert [0] * 10 == [child.returncode for child in children]
    assert len(runner.migrations()) == sum(applied)
    assert DUMP.read_text() == _shape(empty_database)


def test_killed_between_two_files_the_next_run_goes_on(empty_database: str) -> None:
    """The second file's record waits for our uncommitted one, so the kill comes after the first was committed."""
    name = runner.migrations()[1]
    with psycopg.connect(empty_database, autocommit=True) as blocker:
        blocker.execute("create schema smena")
        blocker.execute(runner.in_schema(runner._LEDGER, "smena").encode())
        with blocker.transaction():
            blocker.execute(runner._record(name, "smena").encode())
            child = _child(empty_database)
            with psycopg.connect(empty_database, autocommit=True) as looker:
                until = time.monotonic() + 30
                waits = (
                    "select exists (select from pg_stat_activity where wait_event_type = 'Lock'"
                    " and datname = current_database() and query like '%insert into smena.migrations%')"
                )
                while not looker.execute(waits.encode()).fetchone()[0]:  # type: ignore[index]
                    assert time.monotonic() < until
                    time.sleep(0.05)
                assert [(1,)] == looker.execute("select number from smena.migrations").fetchall()
            child.send_signal(signal.SIGKILL)
            child.communicate()
            raise psycopg.Rollback
    assert [migration.number for migration in runner.migrations()[1:]] == [
        migration.number for migration in _migrations.migrate(empty_database)
    ]
    assert DUMP.read_text() == _shape(empty_database)


def test_two_schemas_in_one_database_do_not_meet(empty_database: str) -> None:
    _migrations.migrate(empty_database)
    _migrations.migrate(empty_database, "another")
    assert _shape(empty_database) == _shape(empty_database, "another")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("select another.lane('q', 0)")
        assert (0,) == connection.execute("select count(*) from smena.queues").fetchone()
        connection.execute("drop schema smena cascade")
        assert (1,) == connection.execute("select count(*) from another.queues").fetchone()


def test_a_lock_that_is_held_is_waited_for_in_short_tries(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runner.migrations()[0]
    monkeypatch.setattr(runner, "migrations", lambda: [first])
    _migrations.migrate(empty_database)
    monkeypatch.setattr(
        runner,
        "migrations",
        lambda: [first, runner.Migration(2, "pre", "alter", "alter table smena.queues add column extra int;")],
    )
    monkeypatch.setattr(runner, "_TRIES", 2)
    with psycopg.connect(empty_database) as reader:
        reader.execute("select count(*) from smena.queues")
        with pytest.raises(Exception, match="got no lock in 2 tries: end the long transaction"):
            _migrations.migrate(empty_database)
    assert [2] == [migration.number for migration in _migrations.migrate(empty_database)]


def test_a_file_that_changed_after_it_was_applied_is_refused(empty_database: str) -> None:
    _migrations.migrate(empty_database)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("update smena.migrations set checksum = 'other' where number = 2")
    with pytest.raises(SchemaError, match="0002 pre  segments was changed after it was applied"):
        _migrations.migrate(empty_database)


def test_a_store_of_another_release_is_told_apart(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        with pytest.raises(SchemaMissing, match="smena db migrate"):
            look(connection, "smena")
        _migrations.migrate(empty_database)
        assert look(connection, "smena").at_home
        connection.execute("delete from smena.migrations where number = 3")
        with pytest.raises(SchemaOutdated, match="is at migration 0002, this release needs 0003"):
            look(connection, "smena")
        connection.execute("insert into smena.migrations values (3, 'pre', 'people', %s)", [_checksum(3)])
        connection.execute("insert into smena.migrations values (99, 'pre', 'tomorrow', 'x')")
        with pytest.raises(SchemaTooNew, match="knows only 0003: upgrade smena"):
            look(connection, "smena")
        with pytest.raises(SchemaTooNew):
            _migrations.migrate(empty_database)


def test_post_files_wait_for_the_pre_files(empty_database: str) -> None:
    with pytest.raises(SchemaError, match="--phase pre"):
        _migrations.migrate(empty_database, phase="post")


def _checksum(number: int) -> str:
    return next(migration.checksum for migration in runner.migrations() if migration.number == number)
