"""How a command ends: every error becomes one line that says what to do, and an exit code.

0 done, 1 failed, 2 usage, 3 not found, 4 unhealthy or drift, 75 temporary, 130 interrupted, 141 nobody reads the output
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click
import psycopg

from smena.cli.text import lines, one_line
from smena.database import masked
from smena.errors import SmenaError

INTERRUPTED = 130
UNREAD = 141

_DOCTOR = "the store does not fit this release: run `smena db migrate`"
_LATER = "try again"
_ADVICE = {
    "42501": (1, "this role lacks the right: its owner can give it, see `smena db grant --help`"),
    "42P01": (4, "there is no job store here: run `smena db migrate`"),
    "3F000": (4, "there is no job store here: run `smena db migrate`"),
    "42703": (4, _DOCTOR),
    "42883": (4, _DOCTOR),
    "25006": (1, "this is a read-only copy: give the DSN of the primary server"),
    "57014": (75, "a time-out set for this role or database ended the statement"),
    "55P03": (75, "another transaction holds what this one needs, see pg_stat_activity; " + _LATER),
    "40P01": (75, _LATER),
    "40001": (75, _LATER),
    "53300": (75, "the server has no free connection; " + _LATER),
}


class Ending:
    """Kept with the run; `debug` is set as soon as --debug is read."""

    def __init__(self) -> None:
        self.debug = False

    def of(self, run: Callable[[], Any]) -> int:
        """Runs a command line and returns its exit code; errors are told on standard error."""
        try:
            code = run()
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_pipe()
            return UNREAD
        except click.Abort:
            _tell("interrupted")
            return INTERRUPTED
        except KeyboardInterrupt:
            _tell("interrupted")
            return INTERRUPTED
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except Exception as error:
            if self.debug:
                _tell_whole(error)
            line, code = explain(error)
            _tell(line)
            return code
        return code if isinstance(code, int) else 0


def explain(error: BaseException) -> tuple[str, int]:
    """What to say of an error, on one line, and the exit code."""
    said = masked(" ".join(str(error).split()))
    match error:
        case SmenaError():
            return said, error.exit_code
        case psycopg.Error():
            code, advice = _ADVICE.get(error.sqlstate or "", (None, ""))
            if code is None and isinstance(error, psycopg.OperationalError):
                code, advice = 75, _LATER
            state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate and not advice else ""
            return f"PostgreSQL said: {said}{state}{': ' if advice else ''}{advice}", code or 1
        case OSError():
            return said, 1
        case _:
            words = f"{type(error).__name__}: {said}" if said else type(error).__name__
            return f"unexpected error: {words} (run it again with --debug and report the traceback)", 1


def _tell(line: str) -> None:
    click.echo(f"smena: {one_line(line)}", err=True)


def _tell_whole(error: BaseException) -> None:
    click.echo(lines(masked("".join(traceback.format_exception(error)))), err=True, nl=False)


def _leave_pipe() -> None:
    """Sends what is still to come to nowhere, so that the interpreter does not complain of it at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # no real file, as in tests
        return
