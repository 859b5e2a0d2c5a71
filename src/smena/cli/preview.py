"""What an action on many jobs would touch."""

from __future__ import annotations

from smena._ops import listing
from smena.cli.documents import read_job
from smena.cli.screen import Column, say, state, table
from smena.cli.selection import Selection
from smena.cli.target import Target
from smena.cli.times import ago

_FIRST = 10
_SORTS = 20


def print_preview(target: Target, verb: str, selection: Selection) -> None:
    """Prints the counts by queue, state and task, and the first jobs."""
    say(f"to {verb}: {len(selection.ids):,} jobs", style="bold")
    sorts = selection.sorts.most_common()
    rows = [(f"{count:,}", queue, state(word), task) for (queue, word, task), count in sorts[:_SORTS]]
    table((Column("jobs", whole=True, right=True), Column("queue"), Column("state", whole=True), Column("task")), rows)
    if len(sorts) > _SORTS:
        say(f"and {sum(count for _, count in sorts[_SORTS:]):,} of {len(sorts) - _SORTS:,} other sorts")
    say()
    jobs, now = target.run(lambda: listing.read(selection.ids[:_FIRST]))
    if len(selection.ids) > _FIRST:
        say(f"the first {_FIRST}:", style="bold")
    table(
        (
            Column("id", whole=True, right=True),
            Column("state", whole=True),
            Column("queue"),
            Column("task"),
            Column("created", whole=True),
            Column("failure"),
        ),
        [
            (
                item["id"],
                state(item["state"]),
                item["queue"],
                item["task"],
                ago(item["created_at"], now),
                item["failure_kind"] or "",
            )
            for item in map(read_job, jobs)
        ],
    )
    if selection.missing:
        say(f"not found: {', '.join(map(str, selection.missing[:_FIRST]))}{' …' * (len(selection.missing) > _FIRST)}")
