"""Where an option's value comes from: a flag anywhere on the line, the environment, smena.toml, the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from smena.cli import main
from smena.database import masked

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = list(commands())


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=lambda path: " ".join(path) or "smena")
def test_help_has_a_purpose_of_one_line_and_one_to_three_examples(path: tuple[str, ...], bare: Any) -> None:
    out = bare(*path, "--help").stdout
    purpose = out.split("\n\n")[1]
    assert 1 == len(purpose.strip().splitlines())
    examples = out.split("Examples:\n")[1].strip().splitlines()
    assert 1 <= len(examples) <= 3
    assert all(example.strip().startswith(f"smena {' '.join(path)}".strip()) or not path[1:] for example in examples)
    assert [] == [line for line in out.split("Examples:")[0].splitlines() if len(line) > 80]


@pytest.mark.parametrize(
    ("path", "option"),
    [
        (path, param)
        for path, command in COMMANDS
        for param in command.params
        if isinstance(param, click.Option) and param.name != "version"
    ],
    ids=lambda value: "" if isinstance(value, tuple) else value.name,
)
def test_every_option_has_an_environment_variable_that_help_names(
    path: tuple[str, ...], option: click.Option, bare: Any
) -> None:
    name = option.envvar or "_".join(["smena", *path, str(option.name)]).upper().replace("-", "_")
    assert str(name).startswith("SMENA_")
    assert f"var: {name}" in " ".join(bare(*path, "--help").stdout.split())


def test_flag_works_before_and_after_the_command(stock: Any, smena: Any, database: str) -> None:
    id = stock.put("ready")
    for words in (["--dsn", database, "job", "list"], ["job", "list", "--dsn", database]):
        assert [id] == [item["id"] for item in smena.json(*words, SMENA_DSN=NOWHERE)["items"]]


def test_flag_after_the_command_beats_one_before(stock: Any, smena: Any, database: str) -> None:
    smena("--dsn", NOWHERE, "job", "list", "--dsn", database)
    smena("--dsn", database, "job", "list", "--dsn", NOWHERE, code=75)


def test_environment_beats_the_file(stock: Any, smena: Any, here: Path) -> None:
    (here / "smena.toml").write_text(f'dsn = "{NOWHERE}"')
    smena("job", "list")
    smena("job", "list", SMENA_DSN="", code=75)


def test_file_beats_the_default(stock: Any, smena: Any, here: Path) -> None:
    ids = [stock.put("done") for _ in range(5)]
    (here / "smena.toml").write_text("limit = 4\n[job]\nlimit = 3\n[job.list]\nlimit = 2\n")
    assert ids[:-3:-1] == smena.ids()
    assert ids[:-2:-1] == smena.ids(SMENA_JOB_LIST_LIMIT="1")
    assert ids[::-1] == smena.ids("--limit", 9, SMENA_JOB_LIST_LIMIT="1")


def test_file_takes_lists_dashes_and_switches(stock: Any, smena: Any, here: Path) -> None:
    wanted = stock.put("failed", queue="mail")
    stock.put("failed", queue="post")
    (here / "smena.toml").write_text(
        '[worker]\nqueues = ["a", "b"]\nuntil-empty = true\nlog-format = "json"\n[job.list]\nqueue = ["mail", "x"]\n'
        'state = "failed"\njson = true\n'
    )
    assert [wanted] == smena.ids()
    assert '"items"' in smena("job", "list").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dsn = ", "smena.toml cannot be read"),
        ("[worker]\nconcurency = 5", "no command has an option for 'concurency' here"),
        ("[wroker]\nqueues = []", "no command has an option for 'wroker' here"),
        ("[job.list]\nconcurrency = 5", "[job], [list]: no command has an option for 'concurrency' here"),
    ],
)
def test_file_that_cannot_be_meant_ends_with_2(text: str, said: str, bare: Any, here: Path) -> None:
    (here / "smena.toml").write_text(text)
    assert said in bare("job", "list", code=2).stderr


def test_value_of_the_file_is_checked_like_a_flag(bare: Any, here: Path) -> None:
    (here / "smena.toml").write_text("[job.list]\nlimit = 0")
    assert "Invalid value for '--limit'" in bare("job", "list", code=2).stderr


def test_schema_is_taken_from_flag_and_environment(smena: Any) -> None:
    smena("db", "migrate", "--schema", "other")
    smena("job", "list", "--schema", "other")
    smena("job", "list", SMENA_SCHEMA="other")
    smena("--schema", "third", "job", "list", code=4)
    assert "cannot be used" in smena("job", "list", "--schema", "No Good", code=2).stderr


APP = "from smena import Smena\napp = Smena({})\n@app.task\ndef work() -> None: ...\n"

Module = Callable[[str, str], str]


def test_app_brings_its_own_database(stock: Any, smena: Any, module: Module, database: str) -> None:
    id = stock.put("ready")
    module("own", APP.format(repr(database)))
    assert [id] == smena.ids("-A", "own:app", SMENA_DSN=NOWHERE)
    assert [id] == smena.ids(SMENA_APP="own:app", SMENA_DSN=NOWHERE)


def test_dsn_flag_beats_the_database_of_the_app(stock: Any, smena: Any, module: Module, database: str) -> None:
    module("away", APP.format(repr(NOWHERE)))
    smena("job", "list", "-A", "away:app", code=75)
    smena("job", "list", "-A", "away:app", "--dsn", database)
    assert masked(database) == smena.json("check", "-A", "away:app", "--dsn", database)["database"]


def test_app_without_a_database_takes_environment_and_file(stock: Any, smena: Any, module: Module, here: Path) -> None:
    module("bare", APP.format(""))
    smena("job", "list", "-A", "bare:app")
    (here / "smena.toml").write_text(f'dsn = "{NOWHERE}"\nschema = "elsewhere"')
    smena("job", "list", "-A", "bare:app", SMENA_DSN="", code=75)


def test_schema_flag_beats_the_schema_of_the_app(smena: Any, module: Module, database: str) -> None:
    module("placed", APP.format(f"{database!r}, schema='placed'"))
    smena("job", "list", "-A", "placed:app", code=4)
    smena("job", "list", "-A", "placed:app", "--schema", "smena")


def test_version_is_told(bare: Any) -> None:
    from importlib.metadata import version

    assert f"smena {version('smena')}\n" == bare("--version").stdout
