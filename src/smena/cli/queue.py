"""`smena queue`: what waits in the queues, and whether they are worked."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from smena._ops import people
from smena._ops.listing import clock
from smena.cli.commands import Group, json_option, option
from smena.cli.documents import read_document
from smena.cli.screen import Column, print_items, remark, say, table
from smena.cli.target import Target, on_target
from smena.cli.text import one_line
from smena.cli.times import ago, parsed, span
from smena.jobs import JobState

_ALWAYS = (JobState.READY, JobState.RUNNING, JobState.FAILED)
_IF_ANY = (JobState.SCHEDULED, JobState.BLOCKED, JobState.UNKNOWN)
# Workers measure every two seconds, less often where it takes long.
_OLD = 10.0
_STALE = 120.0


@click.group(cls=Group, examples=("smena queue list", 'smena queue pause payments --reason "provider is down"'))
def queue() -> None:
    """Look at queues, pause and resume them."""


@queue.command("list", examples=("smena queue list", "smena queue list --json"))
@json_option
@on_target
def list_queues(target: Target, as_json: bool) -> None:
    """List the queues: how much waits, runs and failed.

    Also since when the oldest ready job waits, and what is paused. The counts are measured by the workers every few
    seconds, and not beyond 10,000.
    """
    target.look()
    items = [read_document(text) for text in target.run(people.queues)]
    if as_json:
        print_items(items)
        return
    if not items:
        remark("no queues: one is made when the first job is stored in it")
        return
    now = target.run(clock)
    shown = [state for state in JobState if state in _ALWAYS or (state in _IF_ANY and _any(items, state))]
    table(
        [
            Column("queue"),
            *(Column(state.value, whole=True, right=True) for state in shown),
            Column("oldest", whole=True, right=True),
            Column("", whole=True),
        ],
        [
            [
                item["queue"],
                *(_count(item, state) for state in shown),
                _oldest(item),
                Text("paused", style="yellow") if item["paused_at"] else "",
            ]
            for item in items
        ],
    )
    for item in items:
        if item["paused_at"]:
            reason = f": {item['pause_reason']}" if item["pause_reason"] else ""
            say(f"{one_line(item['queue'])}: {_paused(item['paused_at'], item['paused_by'], now)}{one_line(reason)}")
    measured = [at for item in items if (at := parsed(item["measured_at"]))]
    if not measured:
        remark("no counts yet: a running worker measures them")
    elif (age := (now - max(measured)).total_seconds()) > _OLD:
        remark(f"counts are {span(age)} old" + (": no worker is measuring them" if age > _STALE else ""))


@queue.command(
    "pause", examples=("smena queue pause payments", 'smena queue pause payments --reason "provider is down"')
)
@click.argument("name")
@option("--reason", metavar="TEXT", help="Why; kept on the queue and in the audit.")
@on_target
def pause_queue(target: Target, name: str, reason: str | None) -> None:
    """Stop claims from a queue.

    What runs goes on. What waits stays, and more may be enqueued.
    """
    target.look()
    was = target.run(lambda: people.patiently(people.pause(name, reason)))
    if was.changed:
        say(f"{one_line(name)} is paused: its workers stop claiming within 2 s")
    else:
        why = f": {one_line(was.reason)}" if was.reason else ""
        say(f"{one_line(name)} was {_paused(was.paused_at, was.paused_by, target.run(clock))}{why}")


@queue.command("resume", examples=("smena queue resume payments",))
@click.argument("name")
@option("--reason", metavar="TEXT", help="Why; kept in the audit.")
@on_target
def resume_queue(target: Target, name: str, reason: str | None) -> None:
    """Let a paused queue be worked again."""
    target.look()
    was = target.run(lambda: people.patiently(people.resume(name, reason)))
    say(f"{one_line(name)} {'is resumed' if was.changed else 'was not paused'}")


def _any(items: list[dict[str, Any]], state: JobState) -> bool:
    return any(item["counts"].get(state, {}).get("count") for item in items)


def _count(item: dict[str, Any], state: JobState) -> str:
    count = item["counts"].get(state)
    if count is None:
        return "-" if item["measured_at"] is None else "0"
    return f"{count['count']:,}{'+' if count['capped'] else ''}"


def _oldest(item: dict[str, Any]) -> str:
    age = item["counts"].get(JobState.READY, {}).get("oldest_age")
    return "-" if age is None else span(age)


def _paused(at: str | None, by: str | None, now: Any) -> str:
    return f"paused {ago(at, now)} by {one_line(by)}"
