"""`smena job requeue | cancel | delete`: one action on many jobs, each in a transaction of its own.

More than one job is shown before it is touched. What was shown is what is acted on: a job that begins to fit the
filters afterwards is not touched, and one that has changed meanwhile is judged anew by the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from smena._ops import people
from smena._ops.listing import Filter
from smena._ops.operation import Operation
from smena.cli.commands import Command, JobId, option
from smena.cli.filters import filter_options
from smena.cli.preview import print_preview
from smena.cli.screen import console, on_terminal, remark
from smena.cli.selection import Selection, by_filter, by_ids
from smena.cli.tally import Tally
from smena.cli.target import Target, on_target
from smena.jobs import JobState

Act = Callable[[int], Operation[str]]

_WITH_BAR = 50

ids_argument = click.argument("ids", nargs=-1, type=JobId(), metavar="[ID]...")
reason_option = option("--reason", metavar="TEXT", help="Why; kept in the audit.")
yes_option = option("--yes", is_flag=True, help="Do it without asking, also to more than one job.")


@click.command(
    "requeue",
    cls=Command,
    examples=(
        "smena job requeue 17",
        'smena job requeue --queue payments --kind EXTERNAL_5XX --reason "provider is back"',
        'smena job requeue 17 --new-key --reason "the first payment was refunded"',
    ),
)
@ids_argument
@filter_options
@reason_option
@option("--new-key", is_flag=True, help="With another idempotency key: the other side will do it again, too.")
@yes_option
@on_target
def requeue_jobs(
    target: Target, ids: tuple[int, ...], filter: Filter, reason: str | None, new_key: bool, yes: bool
) -> None:
    """Start finished jobs anew, as if they had never run. Also: smena job retry.

    With filters and no --state, failed jobs are meant. Done jobs are only repeated with --new-key.
    """
    states = (JobState.FAILED,)
    _run(target, "requeue", ids, filter, states, yes, lambda id: people.requeue(id, reason, new_key=new_key))


@click.command(
    "cancel",
    cls=Command,
    examples=("smena job cancel 17", 'smena job cancel --task shop.newsletter --reason "wrong text"'),
)
@ids_argument
@filter_options
@reason_option
@yes_option
@on_target
def cancel_jobs(target: Target, ids: tuple[int, ...], filter: Filter, reason: str | None, yes: bool) -> None:
    """Cancel jobs that are not finished. A running one is asked to stop.

    With filters and no --state, scheduled, blocked, ready and running jobs are meant.
    """
    states = (JobState.SCHEDULED, JobState.BLOCKED, JobState.READY, JobState.RUNNING)
    _run(target, "cancel", ids, filter, states, yes, lambda id: people.cancel(id, reason))


@click.command(
    "delete",
    cls=Command,
    examples=("smena job delete 17", "smena job delete --state failed --task shop.newsletter --yes"),
)
@ids_argument
@filter_options
@reason_option
@yes_option
@on_target
def delete_jobs(target: Target, ids: tuple[int, ...], filter: Filter, reason: str | None, yes: bool) -> None:
    """Remove jobs and their history for good.

    With filters and no --state, failed and cancelled jobs are meant.
    """
    states = (JobState.FAILED, JobState.CANCELLED)
    _run(target, "delete", ids, filter, states, yes, lambda id: people.delete(id, reason))


def _run(
    target: Target,
    verb: str,
    ids: tuple[int, ...],
    filter: Filter,
    states: tuple[JobState, ...],
    yes: bool,
    act: Act,
) -> None:
    if bool(ids) == bool(filter):
        raise click.UsageError("give ids or filters, not both" if ids else f"which jobs? give ids or filters to {verb}")
    target.look()
    selection = by_ids(target, ids) if ids else by_filter(target, filter, states)
    if not selection.ids and not selection.missing:
        remark("no jobs fit: nothing was changed")
        return
    if len(selection.ids) > 1 and not _agreed(target, verb, selection, yes):
        click.get_current_context().exit(2)
    tally = Tally(verb, selection)
    try:
        with _progress(verb, len(selection.ids)) as advance:
            for id in selection.ids:
                tally.note(id, lambda id=id: target.run(lambda: people.patiently(act(id))))  # type: ignore[misc]
                advance()
    finally:
        tally.report()
    click.get_current_context().exit(tally.exit_code)


def _agreed(target: Target, verb: str, selection: Selection, yes: bool) -> bool:
    print_preview(target, verb, selection)
    if yes:
        return True
    if not on_terminal():
        remark(f"smena: nothing was changed: to {verb} these {len(selection.ids):,} jobs, add --yes")
        return False
    if click.confirm(f"{verb.capitalize()} these {len(selection.ids):,} jobs?", err=True):
        return True
    remark("nothing was changed")
    return False


@contextmanager
def _progress(verb: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal while it takes long."""
    bar = Progress(
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(sys.stderr),
        transient=True,
        disable=total < _WITH_BAR or not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(verb, total=total)
        yield lambda: bar.advance(task)
