"""`smena.toml` in the current folder: options that need not be repeated.

    dsn = "postgresql://localhost/shop"     # a key applies to every command that has the option

    [worker]
    queues = ["payments", "mail"]

    [job.list]
    limit = 50

A flag beats the environment, the environment beats this file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from smena.errors import ConfigurationError

FILE = "smena.toml"


def default_map(root: click.Group, folder: Path) -> dict[str, Any]:
    """What click takes as defaults, by command and option. Raises ConfigurationError for what cannot be meant."""
    path = folder / FILE
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    return _spread(root, table, {}, str(path))


def _spread(command: click.Command, table: dict[str, Any], inherited: dict[str, Any], where: str) -> dict[str, Any]:
    commands = command.commands if isinstance(command, click.Group) else {}
    known = _keys_beneath(command)
    given = dict(inherited)
    for key, value in table.items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and key in commands:
            continue
        if isinstance(value, dict) or name not in known:
            allowed = ", ".join(sorted({*known, *commands} - {"help", "version"}))
            raise ConfigurationError(f"{where}: no command has an option for {key!r} here; known are: {allowed}")
        given[name] = value
    made: dict[str, Any] = {}
    for key, param in _keys(command).items():
        if key in given:
            value = given[key]
            made[param.name or key] = [value] if param.multiple and not isinstance(value, list) else value
    for name, child in commands.items():
        made[name] = _spread(child, table.get(name, {}), given, f"{where}, [{name}]")
    return made


def _keys(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by their long names, as the file writes them."""
    return {
        opt.removeprefix("--").replace("-", "_"): param
        for param in command.params
        if isinstance(param, click.Option)
        for opt in param.opts
        if opt.startswith("--")
    }


def _keys_beneath(command: click.Command) -> set[str]:
    keys = set(_keys(command))
    if isinstance(command, click.Group):
        for child in command.commands.values():
            keys |= _keys_beneath(child)
    return keys
