"""A migration waits for its locks in short tries, so that nobody queues behind it."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from smena import _migrations
from smena._migrations import runner

ALTER = runner.Migration(2, "pre", "alter", "alter table smena.queues add column extra int;")


@pytest.fixture
def one_step_behind(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The DSN of a store that lacks one migration, which wants an exclusive lock on a table."""
    first = runner.migrations()[0]
    monkeypatch.setattr(runner, "migrations", lambda: [first])
    _migrations.migrate(empty_database)
    monkeypatch.setattr(runner, "migrations", lambda: [first, ALTER])
    return empty_database


def until_blocked(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Returns when the migration waits for its lock."""
    waits = (
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock' and query like '%add column extra%'"
    )
    while connection.execute(waits.encode()).fetchone() == (0,):
        time.sleep(0.005)


def test_migration_goes_on_when_the_reader_in_its_way_has_gone(one_step_behind: str) -> None:
    applied: list[int] = []
    migration = threading.Thread(target=lambda: applied.extend(m.number for m in _migrations.migrate(one_step_behind)))
    with psycopg.connect(one_step_behind, autocommit=True) as watch, psycopg.connect(one_step_behind) as reader:
        reader.execute("select count(*) from smena.queues")
        migration.start()
        until_blocked(watch)
        reader.rollback()
        migration.join(timeout=60)
    assert [2] == applied


def test_others_read_and_write_while_a_migration_waits(one_step_behind: str) -> None:
    migration = threading.Thread(target=lambda: _migrations.migrate(one_step_behind))
    with psycopg.connect(one_step_behind, autocommit=True) as other, psycopg.connect(one_step_behind) as reader:
        reader.execute("select count(*) from smena.queues")
        migration.start()
        for n in range(3):
            until_blocked(other)
            # Behind the waiting migration; it gives up after a second, and we are next.
            other.execute("set statement_timeout = '20s'")
            other.execute("insert into smena.queues (name) values (%s)", [f"q{n}"])
        reader.rollback()
        migration.join(timeout=60)
        assert other.execute("select count(*), count(extra) from smena.queues").fetchone() == (3, 0)
