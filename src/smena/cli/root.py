"""`smena`: the nouns, the options that hold for all of them, and the one place where a run ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from smena.cli.check import check
from smena.cli.commands import Group
from smena.cli.db import db
from smena.cli.demo import demo
from smena.cli.ending import UNREAD, Ending
from smena.cli.job import job
from smena.cli.queue import queue
from smena.cli.settings import default_map
from smena.cli.target import target_options
from smena.cli.worker import worker


class Root(Group):
    """The whole command line. Calling it runs `sys.argv`, or the arguments given, and exits."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str = "smena", standalone_mode: bool = True, **extra: Any
    ) -> Any:
        def run() -> Any:
            settings = {"default_map": default_map(self, Path.cwd()), "obj": ending, **extra}
            return super(Root, self).main(args, prog_name="smena", standalone_mode=False, **settings)

        ending = Ending()
        if not standalone_mode:
            return run()
        _accept_any_text()
        sys.exit(ending.of(run))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _pipe_may_close():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipe_may_close():
            return super().invoke(ctx)


@contextmanager
def _pipe_may_close() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # Otherwise click would end with 1, as if the command had failed.
        raise click.exceptions.Exit(UNREAD) from None


def _accept_any_text() -> None:
    """A terminal or pipe that cannot show a character gets its escape instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"smena {version('smena')}")
        ctx.exit()


@click.group(
    cls=Root,
    examples=(
        "smena worker -A shop.jobs:app -q payments,mail",
        "smena job list --state failed",
        "smena --dsn postgresql://localhost/shop queue list",
    ),
    context_settings={"auto_envvar_prefix": "SMENA", "help_option_names": ["-h", "--help"], "show_default": True},
)
@target_options
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def main(**options: object) -> None:
    """Background work on the PostgreSQL you already have.

    Options may stand before or after a command's name. A flag beats its environment variable, which beats smena.toml
    in the current folder. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 unhealthy or drift, 75 temporary.
    """


for command in (check, db, demo, job, queue, worker):
    main.add_command(command)
