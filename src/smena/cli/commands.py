"""The kinds of command: each tells its purpose, its options with their environment variables, and examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Option(click.Option):
    """An option whose help names its environment variable."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        attributes.setdefault("show_envvar", True)
        super().__init__(*args, **attributes)


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them; the option may also be repeated."""

    name = "names"
    envvar_list_splitter = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(name for name in (part.strip() for part in str(value).split(",")) if name)
        if not names:
            self.fail("give at least one name", param, ctx)
        return names


class JobId(click.IntRange):
    """The number of a job."""

    name = "job id"

    def __init__(self) -> None:
        super().__init__(1, 2**63 - 1)

    def _describe_range(self) -> str:
        return ""  # nobody needs to be told how many jobs there could be


def flat(ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Joins what a repeated option of `Names` collected."""
    return tuple(dict.fromkeys(name for names in value for name in names))


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """`click.option`, with the environment variable in the help."""
    return click.option(*names, cls=Option, **attributes)


def names_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that takes names with commas between them, more than once."""
    attributes.setdefault("callback", flat)
    return option(*names, type=Names(), multiple=True, metavar="NAME[,…]", **attributes)


class Command(click.Command):
    """A command with examples at the end of its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.examples, formatter)


class Group(click.Group):
    """A noun, or all of them. `aliases` are other words for its commands."""

    command_class = Command
    group_class = type

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), aliases: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)
        self.aliases = dict(aliases or {})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # By its own name, whatever it was called: environment variables and smena.toml know only that one.
        _, command, rest = super().resolve_command(ctx, args)
        return (command.name if command else None), command, rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self.examples, formatter)


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def json_option(function: F) -> F:
    """The option of every command that reads."""
    add = option("--json", "as_json", is_flag=True, envvar="SMENA_JSON", help="Print JSON; see docs/cli-json.md.")
    return add(function)
