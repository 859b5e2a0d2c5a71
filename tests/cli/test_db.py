"""`smena db`: migrate, status, sql, adopt. Grants have a file of their own."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from smena import _migrations
from smena._migrations import runner
from smena._migrations.runner import Migration
from smena.cli import db


def dump(dsn: str, schema: str = "smena") -> list[Any]:
    """The relations, columns and functions of a schema."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "select relname, attname, atttypid::regtype::text from pg_attribute a join pg_class c on c.oid = attrelid"
            " where relnamespace = %(schema)s::text::regnamespace and attnum > 0"
            " union all select proname, pg_get_function_arguments(oid), md5(replace(prosrc, %(schema)s::text, ''))"
            " from pg_proc where pronamespace = %(schema)s::text::regnamespace order by 1, 2",
            {"schema": schema},
        ).fetchall()


def test_migrate_brings_an_empty_database_to_this_release(smena: Any, database: str, empty_database: str) -> None:
    out = smena("db", "migrate", "--dsn", empty_database).stdout
    assert [f"applied {one}" for one in _migrations.runner.migrations()] == out.splitlines()[:-1]
    assert dump(database) == dump(empty_database)


def test_second_migrate_does_nothing(smena: Any, database: str) -> None:
    out = smena("db", "migrate").stdout
    assert 1 == len(out.splitlines())
    assert "is up to date" in out


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release with one more migration before it and one after it."""
    known = runner.migrations()
    more = [
        Migration(len(known) + 1, "pre", "widen", "create table smena.wide ();"),
        Migration(len(known) + 2, "post", "tidy", "drop table smena.wide;"),
    ]
    monkeypatch.setattr(runner, "migrations", lambda: [*known, *more])


def test_phases_are_applied_apart_and_in_their_order(later: None, smena: Any, stock: Any) -> None:
    assert "--phase pre" in smena("db", "migrate", "--phase", "post", code=4).stderr
    assert "smena db migrate" in smena("job", "list", code=4).stderr
    out = smena("db", "migrate", "--phase", "pre").stdout
    assert "widen" in out
    assert "1 left for the other phase" in out
    smena("job", "list")
    smena("db", "status")
    assert "tidy" in smena("db", "migrate", "--phase", "post").stdout
    assert stock.one("select to_regclass('smena.wide')") is None


def test_status_shows_what_is_applied(smena: Any, stock: Any, database: str) -> None:
    status = smena.json("db", "status")
    applied = stock.sql("select number, phase, name, applied_at from smena.migrations order by 1")
    items = [tuple(item.values()) for item in status["items"]]
    assert [(number, phase, name, at.isoformat()) for number, phase, name, at in applied] == items
    assert (None, True, "smena") == (status["problem"], status["at_home"], status["schema"])
    assert str(stock.one("select id from smena.installation")) == status["installation"]
    assert status["installation"] in smena("db", "status").stdout


def test_status_ends_with_4_when_this_release_cannot_work(smena: Any, empty_database: str, stock: Any) -> None:
    assert "smena db migrate" in smena("db", "status", "--dsn", empty_database, code=4).stderr
    status = json.loads(smena("db", "status", "--json", "--dsn", empty_database, code=4).stdout)
    assert {None} == {item["applied_at"] for item in status["items"]}
    assert "smena db migrate" in status["problem"]
    stock.sql("insert into smena.migrations (number, phase, name, checksum) values (9999, 'pre', 'future', 'x')")
    for words in (["db", "status"], ["db", "migrate"], ["job", "list"]):
        assert "upgrade smena" in smena(*words, code=4).stderr


def test_sql_makes_the_same_store_as_migrate(smena: Any, database: str, empty_database: str) -> None:
    for words in (["--all"], ["--dsn", empty_database]):
        text = smena("db", "sql", *words).stdout
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute(text.encode())
            assert dump(database) == dump(empty_database)
            connection.execute("drop schema smena cascade")


def test_sql_of_a_store_that_is_up_to_date_is_empty(smena: Any) -> None:
    result = smena("db", "sql")
    assert ("", "nothing to do: the store is up to date\n") == (result.stdout, result.stderr)


def test_sql_without_a_dsn_needs_no_database(smena: Any) -> None:
    assert 'create table "other".job' in smena("db", "sql", "--schema", "other", SMENA_DSN="").stdout


def move(stock: Any) -> None:
    """The store looks as if it had been made in another database, as after a restore."""
    stock.sql("update smena.installation set system_identifier = 1, database_oid = 2")


def keys(stock: Any) -> list[Any]:
    return list(stock.sql("select idempotency_key from smena.jobs order by id"))


def test_store_at_home_needs_no_adoption(smena: Any, stock: Any) -> None:
    before = stock.sql("select * from smena.installation")
    assert "nothing to do" in smena("db", "adopt").stdout
    assert before == stock.sql("select * from smena.installation")


def test_adoption_is_shown_and_not_done_without_yes(smena: Any, stock: Any) -> None:
    stock.put("ready")
    stock.count()
    move(stock)
    before = stock.sql("select * from smena.installation")
    result = smena("db", "adopt", code=2)
    assert "its original must be gone for good" in result.stdout
    assert "about 1 when last counted" in result.stdout
    assert "add --yes" in result.stderr
    assert before == stock.sql("select * from smena.installation")


def test_copy_that_takes_over_keeps_its_keys(smena: Any, stock: Any) -> None:
    stock.put("ready")
    move(stock)
    installation, before = stock.one("select id from smena.installation"), keys(stock)
    assert "a copy: workers refuse it" in smena("db", "status").stdout
    smena("db", "adopt", "--yes", "--reason", "moved to a new server")
    assert (installation, before) == (stock.one("select id from smena.installation"), keys(stock))
    assert stock.one(
        "select i.system_identifier = c.system_identifier and i.database_oid = d.oid::bigint"
        " from smena.installation i, pg_control_system() c, pg_database d where datname = current_database()"
    )
    [(action, reason, was, now)] = stock.sql("select action, reason, before, after from smena.audit")
    assert ("adopt", "moved to a new server", 1) == (action, reason, was["system_identifier"])
    assert was["id"] == now["id"]
    smena("db", "adopt")


def test_copy_beside_its_original_shares_no_key_with_it(smena: Any, stock: Any) -> None:
    stock.put("ready")
    move(stock)
    before = keys(stock)
    assert "new idempotency key" in smena("db", "adopt", "--apart", code=2).stdout
    assert before == keys(stock)
    smena("db", "adopt", "--apart", "--yes")
    assert not set(before) & set(keys(stock))


@pytest.mark.parametrize(("answer", "home"), [("y", True), ("n", False)])
def test_on_a_terminal_adoption_asks(
    answer: str, home: bool, smena: Any, stock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "on_terminal", lambda: True)
    move(stock)
    smena("db", "adopt", input=f"{answer}\n", code=0 if home else 2)
    assert home is smena.json("db", "status")["at_home"]
