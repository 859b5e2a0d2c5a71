"""What every test may count on."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

pytest_plugins = ["pytester", "fix_database", "crash.fix_workers"]

# A deadline per example would fail on a busy machine; the time limit of the whole test stays.
settings.register_profile("smena", deadline=None, print_blob=True)
settings.load_profile("smena")

# A developer's own settings must not decide a test. Done on import: child processes inherit what is left.
for name in [
    name for name in os.environ if name.startswith("SMENA_") and name not in ("SMENA_TEST_DSN", "SMENA_HISTORIES")
]:
    del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that touch a server, which are run again on SMENA_TEST_DSN."""
    for item in items:
        if "server_dsn" in getattr(item, "fixturenames", ()):
            item.add_marker("database")
