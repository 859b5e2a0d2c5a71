"""`smena worker`: runs jobs. `smena worker list`: who runs jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import click

from smena._ops import listing, people
from smena._worker.process import Worker, WorkerOptions
from smena.cli import logs
from smena.cli.check import NO_TASKS
from smena.cli.commands import Group, json_option, names_option, option
from smena.cli.documents import read_document
from smena.cli.screen import Column, print_items, remark, table
from smena.cli.target import Target, on_target, target_of, target_options
from smena.cli.times import ago
from smena.errors import ConfigurationError


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=(
        "smena worker -A shop.jobs:app",
        "smena worker -A shop.jobs:app -q payments,mail --concurrency 50",
        "smena worker -A shop.jobs:app --until-empty",
    ),
)
@names_option("-q", "--queues", envvar="SMENA_QUEUES", help="Work only these queues; all unless given.")
@option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=20,
    envvar="SMENA_CONCURRENCY",
    help="Jobs at the same time.",
)
@option(
    "--lease",
    type=click.FloatRange(2, 86_400),
    envvar="SMENA_LEASE",
    metavar="SECONDS",
    help="After so long without a sign of life this worker is taken for dead; the app's, or 30, unless given.",
)
@option(
    "--grace",
    type=click.FloatRange(0, 86_400),
    default=25.0,
    envvar="SMENA_GRACE",
    metavar="SECONDS",
    help="At a stop, how long running jobs may take to end; then they are handed back.",
)
@option("--until-empty", is_flag=True, envvar="SMENA_UNTIL_EMPTY", help="End when nothing is ready, running or due.")
@option("--release", envvar="SMENA_RELEASE", metavar="TEXT", help="The version of the code; shown with the worker.")
@option(
    "--log-format",
    type=click.Choice(("text", "json")),
    envvar="SMENA_LOG_FORMAT",
    help="Lines for people or JSON; text unless given.",
)
@option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error"), case_sensitive=False),
    default="info",
    envvar="SMENA_LOG_LEVEL",
    help="What is logged.",
)
@option(
    "--maintain/--no-maintain",
    default=True,
    envvar="SMENA_MAINTAIN",
    help="Whether this worker also does the background duties; some worker must.",
)
@target_options
@click.pass_context
def worker(ctx: click.Context, /, **options: Any) -> None:
    """Run jobs until told to stop; `smena worker list` shows who does.

    The first TERM or INT drains: no new jobs, the running ones may end. The second cancels these and hands them back,
    the third leaves at once. With --until-empty the exit code is 1 if a job failed or its outcome is unknown.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_work(target_of(ctx), **{name: value for name, value in options.items() if name not in _TARGET}))


_TARGET = ("dsn", "schema", "app")


def _work(target: Target, log_format: str | None, log_level: str, queues: tuple[str, ...], **options: Any) -> int:
    app = target.app
    if not app.tasks:
        raise ConfigurationError(NO_TASKS.format(target.app_path))
    logs.set_up(log_format, log_level)
    target.dsn  # noqa: B018 - starts an embedded server, and says so
    chosen = WorkerOptions(queues=queues or None, **options)

    async def run() -> int:
        process = Worker(app, chosen)
        await process.run()
        return process.failed

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        failed = runner.run(run())
    return 1 if failed and chosen.until_empty else 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@worker.command("list", examples=("smena worker list", "smena worker list --json"))
@json_option
@on_target
def list_workers(target: Target, as_json: bool) -> None:
    """List the worker processes.

    What they work, how busy they are, and when they last renewed their lease.
    """
    target.look()
    items = [read_document(text) for text in target.run(people.workers)]
    if as_json:
        print_items(items)
        return
    if not items:
        remark("no workers")
        return
    now = target.run(listing.clock)
    table(
        (
            Column("worker"),
            Column("state", whole=True),
            Column("busy", whole=True, right=True),
            Column("queues"),
            Column("release"),
            Column("started", whole=True),
            Column("renewed", whole=True),
        ),
        [
            (
                item["name"],
                item["state"],
                f"{item['running']}/{item['concurrency']}",
                ", ".join(item["queues"]) or "all",
                item["release"] or "-",
                ago(item["started_at"], now),
                ago(item["renewed_at"], now),
            )
            for item in items
        ],
    )
