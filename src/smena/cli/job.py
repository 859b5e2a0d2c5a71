"""`smena job`: look at jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from smena._ops import listing, people
from smena._ops.listing import NEWEST, Filter
from smena.cli.bulk import cancel_jobs, delete_jobs, requeue_jobs
from smena.cli.commands import Group, JobId, json_option, option
from smena.cli.documents import read_document, read_job
from smena.cli.filters import filter_options
from smena.cli.job_page import history, print_job
from smena.cli.screen import Column, print_items, print_json, remark, state, table
from smena.cli.target import Target, on_target
from smena.cli.times import ago
from smena.errors import NotFound

HISTORY = 100


@click.group(
    cls=Group,
    aliases={"retry": "requeue"},
    examples=("smena job list --state failed", "smena job show 17", "smena job requeue 17"),
)
def job() -> None:
    """Look at jobs, requeue, cancel and delete them."""


for command in (requeue_jobs, cancel_jobs, delete_jobs):
    job.add_command(command)


@job.command(
    "list",
    examples=(
        "smena job list --queue payments --limit 20",
        "smena job list --state failed,unknown --kind EXTERNAL_TIMEOUT",
        "smena job list --state ready --json",
    ),
)
@filter_options
@option("--limit", type=click.IntRange(1, 10_000), default=100, help="At most so many.")
@option("--cursor", type=JobId(), metavar="CURSOR", help="Go on where another list ended.")
@json_option
@on_target
def list_jobs(target: Target, filter: Filter, limit: int, cursor: int | None, as_json: bool) -> None:
    """List jobs, the newest first."""
    target.look()
    page = target.run(lambda: listing.page(filter, limit=limit, before=cursor or NEWEST))
    items = [read_job(text) for text in page.jobs]
    if as_json:
        print_items(items, None if page.next is None else str(page.next))
        return
    if items:
        table(COLUMNS, [row(item, page.now) for item in items])
    else:
        remark("no jobs fit" if filter else "no jobs")
    if page.next is not None:
        remark(f"older ones: --cursor {page.next}")


@job.command("show", examples=("smena job show 17", "smena job show 17 --json"))
@click.argument("id", type=JobId())
@json_option
@on_target
def show_job(target: Target, id: int, as_json: bool) -> None:
    """Show one job: everything the store knows of it, with its attempts."""
    target.look()
    jobs, now = target.run(lambda: listing.read([id]))
    if not jobs:
        raise NotFound(f"no job {id}: it was deleted, its retention is over, or its transaction rolled back")
    shown = read_job(jobs[0])
    attempts = [read_document(text) for text in target.run(lambda: people.attempts(id, most=HISTORY + 1))]
    shown["history"] = history(shown, attempts[:HISTORY])
    shown["history_cut"] = len(attempts) > HISTORY
    if as_json:
        print_json(shown)
    else:
        print_job(shown, now)


COLUMNS = (
    Column("id", whole=True, right=True),
    Column("state", whole=True),
    Column("queue"),
    Column("task"),
    Column("attempt", whole=True, right=True),
    Column("when", whole=True),
    Column("failure"),
)


def row(item: dict[str, Any], now: datetime) -> list[Any]:
    """A job as a line of a table."""
    return [
        item["id"],
        state(item["state"]),
        item["queue"],
        item["task"],
        f"{item['attempt']}/{item['max_attempts']}",
        ago(_moment(item), now),
        item["failure_kind"] or "",
    ]


def _moment(item: dict[str, Any]) -> str | None:
    """The time that matters most in its state: when it will start, since when it waits or runs, when it ended."""
    match item["state"]:
        case "scheduled" | "ready":
            moment = item["run_at"]
        case "running":
            moment = item["started_at"]
        case "blocked":
            moment = item["created_at"]
        case _:
            moment = item["finished_at"] or item["created_at"]
    return None if moment is None else str(moment)
