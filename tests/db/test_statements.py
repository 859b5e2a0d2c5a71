"""Every statement file, prepared on a real server."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from smena import _migrations, _sql
from smena._sql import in_schema, statement
from smena.errors import ConfigurationError

ROOT = Path(_sql.__file__).parent
NAMES = sorted(str(path.relative_to(ROOT))[:-4] for path in ROOT.rglob("*.sql"))


@pytest.mark.parametrize("schema", ["smena", "other_one"])
def test_every_statement_is_valid_with_an_empty_search_path(database: str, schema: str) -> None:
    if schema != "smena":
        _migrations.migrate(database, schema)
    with psycopg.connect(database, autocommit=True) as connection:
        if schema != "smena":
            connection.execute("drop schema smena cascade")
        connection.execute("set search_path to ''")
        for n, name in enumerate(NAMES):
            found = statement(name, schema)
            if found.names or found.numbered.startswith(("select", "with", "insert", "update", "delete")):
                connection.execute(f"prepare s{n} as {found.numbered}".encode())
            else:  # LOCK and savepoints cannot be prepared, but do no harm
                with connection.transaction(force_rollback=True):
                    connection.execute("savepoint smena_job")
                    connection.execute(found.numbered.encode())


def test_the_files_run_in_psql_as_they_are() -> None:
    """Parameters are psql's own variables, and a cast is not taken for one."""
    found = statement("jobs/enqueue")
    assert "queue" in found.names
    assert "::text" in found.numbered
    assert "%(queue)s" in found.named


@pytest.mark.parametrize("schema", ["", "Smena", "a-b", 'x"; drop schema public; --', "1st", "a" * 41])
def test_a_schema_name_that_would_need_quoting_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used"):
        in_schema("select 1", schema)
