"""The command `smena demo`."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from click.core import ParameterSource
from rich.console import Console

from smena.cli.commands import Option
from smena.demo.purchases import SAMPLE
from smena.demo.report import Report
from smena.errors import ConfigurationError


@click.command("demo")
@click.option(
    "--dsn",
    metavar="DSN",
    envvar="SMENA_DSN",
    help="A server to use, in two schemas of the demo's own; without it, an embedded one is started.",
    cls=Option,
)
@click.option(
    "--input",
    "path",
    envvar="SMENA_DEMO_INPUT",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SAMPLE,
    show_default="6,919 purchases that come with smena",
    help="Purchases in the format of the CDNOW files.",
    cls=Option,
)
@click.option("--workers", type=click.IntRange(1, 50), default=3, help="Worker processes.", cls=Option)
@click.option("--no-kill", is_flag=True, help="Kill no worker.", cls=Option)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="SMENA_JSON",
    help="Print the result as JSON, and the rest to standard error.",
    cls=Option,
)
@click.option(
    "--keep", is_flag=True, help="Leave the schemas, the provider's ledger and the logs for a look at them.", cls=Option
)
@click.pass_context
def main(
    ctx: click.Context, dsn: str | None, path: Path, workers: int, no_kill: bool, as_json: bool, keep: bool
) -> None:
    """Charges real purchases at a provider that misbehaves, kills a worker midway, and checks every charge.

    Ends with 0 only if each purchase was charged once and those of 0.00 were refused.
    """
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    try:
        with _ended_by_signals():
            report = _run(console, _dsn(ctx), path, workers, kill=not no_kill, keep=keep)
    except KeyboardInterrupt:
        console.print("Every process of the demo is stopped.")
        raise
    if as_json:
        click.echo(json.dumps(report.fields()))
    ctx.exit(0 if report.good else 1)


def _run(console: Console, dsn: str | None, path: Path, workers: int, *, kill: bool, keep: bool) -> Report:
    if importlib.util.find_spec("aiohttp") is None:
        raise ConfigurationError("smena demo needs aiohttp to serve and to call HTTP: `pip install 'smena[embedded]'`")
    # Not before that check: the shop imports aiohttp.
    from smena.demo.demonstration import Demonstration

    return Demonstration(dsn=dsn, input=path, workers=workers, kill=kill, keep=keep).run(console)


def _dsn(ctx: click.Context) -> str | None:
    """The flag after the command's name, else the one before it, else the environment."""
    here: click.Context | None = ctx
    while here is not None:
        if here.get_parameter_source("dsn") is ParameterSource.COMMANDLINE:
            break
        here = here.parent
    return (here or ctx).params["dsn"] or None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: everything is tidied up on the way out."""
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in (*numbers, signal.SIGINT)}
    for number in numbers:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
