"""What the commands print: tables and texts for people, JSON for programs.

Tables go to standard output, remarks to standard error. Without a terminal there are no colours, and lines are as long
as they need to be unless COLUMNS says otherwise, so that a pipe never loses the end of a name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from smena.cli.text import json_line, lines, one_line

_ENDLESS = 10_000
_encode = msgspec.json.Encoder(decimal_format="number").encode

STATE_STYLES = {
    "scheduled": "cyan",
    "blocked": "magenta",
    "ready": "blue",
    "running": "yellow",
    "done": "green",
    "failed": "bold red",
    "unknown": "bold magenta",
    "cancelled": "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `whole`: never wrapped, because half an id is of no use."""

    name: str
    whole: bool = False
    right: bool = False


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output as it is now, or on `file`."""
    file = file or sys.stdout
    made = _Console(file=file, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _ENDLESS
    return made


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table. A cell is a text of anybody's, or a `Text` made here."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(
            column.name,
            no_wrap=column.whole,
            overflow="fold",
            justify="right" if column.right else "left",
        )
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row))
    console().print(drawn)


def state(word: str) -> Text:
    """A state, in its colour."""
    return Text(one_line(word), style=STATE_STYLES.get(word, ""))


def say(text: str = "", *, style: str = "") -> None:
    """Prints lines for people."""
    console().print(Text(lines(text), style=style), soft_wrap=True)


def remark(text: str) -> None:
    """Says something beside the answer, on standard error."""
    click.echo(lines(text), err=True)


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    click.echo(json_line(pretty_json(value)))


def print_items(items: Sequence[Any], next: str | None = None, **more: Any) -> None:
    """Prints a list as every reading command does with `--json`."""
    print_json({"items": items, "next": next, **more})


def pretty_json(value: Any) -> str:
    """Numbers keep their digits: a Decimal is written as it was read."""
    return msgspec.json.format(_encode(value), indent=2).decode()


def on_terminal() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()
