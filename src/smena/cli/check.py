"""`smena check`: could a worker start here? Looks, writes nothing, and says so with its exit code."""

from __future__ import annotations

from typing import Any

import click

from smena.cli.commands import Command, json_option
from smena.cli.ending import explain
from smena.cli.screen import Column, print_json, remark, say, table
from smena.cli.target import Target, on_target
from smena.cli.text import one_line
from smena.database import masked
from smena.retry import Retry
from smena.tasks import Task

NO_TASKS = "app {!r} has no tasks: define them with @app.task where it is imported"


@click.command("check", cls=Command, examples=("smena check -A shop.jobs:app", "smena check -A shop.jobs:app --json"))
@json_option
@on_target
def check(target: Target, as_json: bool) -> None:
    """Look whether a worker could start here. Writes nothing.

    Imports the app, lists its tasks, and looks at its store.

    Ends with 4 when the store was never migrated, is older or newer than this release, or is a copy that was not
    adopted; with 75 when the database cannot be reached; with 2 when the app cannot be imported.
    """
    app = target.app
    tasks = sorted({id(task): task for task in app.tasks.values()}.values(), key=lambda task: task.name)
    problems: list[tuple[str, int]] = []
    if not tasks:
        problems.append((NO_TASKS.format(target.app_path), 2))
    database = None
    if target.has_dsn:
        database = masked(target.dsn)
        try:
            _look(target)
        except Exception as error:
            if not as_json:
                _print_tasks(tasks)
                raise
            problems.append(explain(error))
    answer = {
        "app": target.app_path,
        "database": database,
        "schema": target.schema,
        "lease": app.lease,
        "queues": sorted({task.options.queue for task in tasks}),
        "tasks": [_described(task) for task in tasks],
        "problems": [problem for problem, _ in problems],
    }
    if as_json:
        print_json(answer)
    else:
        _print_tasks(tasks)
        _print_place(answer)
        for problem, _ in problems:
            remark(f"smena: {one_line(problem)}")
    click.get_current_context().exit(problems[0][1] if problems else 0)


def _look(target: Target) -> None:
    from smena.store import look

    # The server itself refuses to write for us.
    with target.connection() as connection:
        connection.read_only = True
        look(connection, target.schema, work=True)


def _described(task: Task[..., Any]) -> dict[str, Any]:
    retry = task.retry
    return {
        "name": task.name,
        "aliases": list(task.aliases),
        "queue": task.options.queue,
        "priority": task.options.priority,
        "timeout": task.timeout,
        "repeat": task.repeat,
        "after_failed": task.after_failed,
        "async": task.is_async,
        "retry": {
            "attempts": retry.attempts,
            "first": retry.first,
            "factor": retry.factor,
            "cap": retry.cap,
            "jitter": retry.jitter,
        },
    }


def _print_tasks(tasks: list[Task[..., Any]]) -> None:
    if tasks:
        table(
            (Column("task"), Column("queue"), Column("retry", whole=True), Column("time-out", whole=True, right=True)),
            [
                (
                    task.name + "".join(f" = {alias}" for alias in task.aliases),
                    task.options.queue,
                    retry_in_words(task.retry) if task.repeat else "never repeated",
                    "-" if task.timeout is None else f"{task.timeout:g} s",
                )
                for task in tasks
            ],
        )
        say()


def retry_in_words(retry: Retry) -> str:
    """
    >>> retry_in_words(Retry())
    '5 attempts, pauses 10 … 80 s'
    """
    if retry.attempts == 1:
        return "1 attempt"
    pauses = [retry.pause(n, 0.5) for n in (1, retry.attempts - 1)]
    between = f"{pauses[0]:g}" if pauses[0] == pauses[1] else f"{pauses[0]:g} … {pauses[1]:g}"
    return f"{retry.attempts} attempts, pauses {between} s"


def _print_place(answer: dict[str, Any]) -> None:
    say(f"queues: {one_line(', '.join(answer['queues']) or '-')}; lease {answer['lease']:g} s")
    if answer["database"] is None:
        say("no DSN: a worker would start the embedded PostgreSQL; the store was not looked at")
    else:
        say(f"store: schema {answer['schema']} of {one_line(answer['database'])} is ready for this release")
