"""`smena demo`: found when it is asked for, because it brings a shop and an HTTP provider with it."""

from __future__ import annotations

from typing import Any

import click

from smena.cli.commands import Command
from smena.errors import SmenaError

_PURPOSE = "See it work: real purchases, a provider that misbehaves."


class _Demo(Command):
    """Stands for the command in `smena.demo.run` until it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            from smena.demo.run import main
        except ModuleNotFoundError as error:
            raise SmenaError(f"the demo is not part of this installation: {error}") from error
        self.params, self.callback, self.help = main.params, main.callback, f"{_PURPOSE}\n\n{main.help}"
        return super().make_context(info_name, args, parent, **extra)


demo = _Demo(
    "demo",
    help=_PURPOSE,
    examples=("smena demo", "smena demo --workers 5"),
)
