"""The options by which jobs are chosen: --state, --queue, --task, --kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from smena._ops.listing import Filter
from smena.cli.commands import flat, names_option
from smena.jobs import JobState


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options, and the `Filter` that they make as the argument `filter`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        state: tuple[JobState, ...],
        queue: tuple[str, ...],
        task: tuple[str, ...],
        kind: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        return function(*args, filter=Filter(state, queue, task, kind), **rest)

    for add in (
        names_option("--kind", help="Only with this failure kind, such as EXTERNAL_TIMEOUT."),
        names_option("--task", help="Only of this task."),
        names_option("--queue", help="Only in this queue."),
        names_option("--state", callback=_states, help=f"Only in this state: {', '.join(JobState)}."),
    ):
        command = add(command)
    return command


def _states(ctx: click.Context, param: click.Parameter, value: Any) -> tuple[JobState, ...]:
    names = flat(ctx, param, value)
    for name in names:
        if name not in list(JobState):
            raise click.BadParameter(f"{name!r} is no state; there are {', '.join(JobState)}", ctx, param)
    return tuple(map(JobState, names))
