"""Fixtures: a PostgreSQL server per session, and a database of its own for each test, as Smena's users get them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smena.testing.databases import dsn_of, empty

__all__ = ["database", "dsn_of", "empty_database", "server_dsn"]


@pytest.fixture(scope="session")
def server_dsn(_smena_server: str) -> str:
    """A server on which the tests may make and drop databases; the DSN names no database of a test."""
    return _smena_server


@pytest.fixture
def database(server_dsn: str, smena_database: str) -> str:
    """The DSN (a `postgresql://` address) of a fresh, migrated, empty database."""
    return smena_database


@pytest.fixture
def empty_database(server_dsn: str) -> Iterator[str]:
    """The DSN (a `postgresql://` address) of a fresh database that was never migrated."""
    with empty(server_dsn) as dsn:
        yield dsn
