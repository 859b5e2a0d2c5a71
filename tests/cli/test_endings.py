"""How a run ends: one line on standard error and an exit code, whatever went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from smena import errors
from smena.cli.ending import explain

Module = Callable[[str, str], str]


def test_each_error_ends_with_its_own_code_on_one_line() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.SmenaError)]
    for cls in classes:
        error = cls("what\nhappened")
        line, code = explain(error)
        assert (cls.exit_code, False) == (code, "\n" in line)


def test_error_is_one_line_and_no_traceback(smena: Any) -> None:
    result = smena("job", "show", 17, code=3)
    assert result.stderr.startswith("smena: no job 17")
    assert 1 == len(result.stderr.splitlines())


@pytest.mark.parametrize("words", [["--debug", "job", "show", "17"], ["job", "show", "17", "--debug"]])
def test_debug_shows_the_traceback(words: list[str], smena: Any) -> None:
    result = smena(*words, code=3)
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("smena: no job 17")
    assert "Traceback" in smena("job", "show", 17, code=3, SMENA_DEBUG="1").stderr


def test_usage_errors_end_with_2(bare: Any) -> None:
    for words in (["jobs"], ["job", "lst"], ["job", "list", "--limt", 5], ["queue", "pause"]):
        bare(*words, code=2)


def test_store_that_was_never_migrated_ends_with_4_and_says_what_to_do(smena: Any, empty_database: str) -> None:
    commands = (["job", "list"], ["queue", "list"], ["queue", "pause", "x"], ["worker", "list"], ["job", "delete", 1])
    for words in commands:
        assert "smena db migrate" in smena(*words, "--dsn", empty_database, code=4).stderr


def test_unreachable_database_ends_with_75_and_keeps_the_secret(bare: Any) -> None:
    for dsn in ("postgresql://me:s3cret@127.0.0.1:1/shop", "host=127.0.0.1 port=1 user=me password=s3cret"):
        for words in (["job", "list"], ["db", "migrate"], ["db", "status"], ["check", "-A", "smena.demo.shop:app"]):
            result = bare(*words, "--dsn", dsn, "--debug", code=75)
            assert "cannot be reached" in result.stderr
            assert "s3cret" not in result.output


def test_database_that_does_not_exist_ends_with_2(smena: Any, database: str) -> None:
    dsn = database.replace("smena_test_", "smena_gone_")
    assert "does not exist" in smena("job", "list", "--dsn", dsn, code=2).stderr


def test_dsn_that_cannot_be_read_ends_with_2(bare: Any) -> None:
    assert "cannot be read" in bare("job", "list", "--dsn", "postgres//shop", code=2).stderr


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("42501", 1, "smena db grant"),
        ("42P01", 4, "smena db migrate"),
        ("42703", 4, "smena db migrate"),
        ("25006", 1, "primary"),
        ("57014", 75, "time-out"),
        ("40P01", 75, "try again"),
        ("53300", 75, "no free connection"),
        ("22012", 1, "SQLSTATE 22012"),
    ],
)
def test_errors_of_the_database_say_what_to_do(state: str, code: int, said: str) -> None:
    line, ended = explain(psycopg.errors.lookup(state)("oh\nno"))
    assert code == ended
    assert "oh no" in line
    assert said in line


def test_lost_connection_is_temporary() -> None:
    assert 75 == explain(psycopg.OperationalError("server closed the connection"))[1]


def test_unexpected_error_is_told_in_one_line(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("so \x1b[31m?")

    monkeypatch.setattr("smena.cli.target.Target.look", broken)
    result = bare("job", "list", code=1)
    assert r"smena: unexpected error: RuntimeError: so \x1b[31m? (run it again with --debug" in result.stderr
    assert "Traceback" in bare("--debug", "job", "list", code=1).stderr


def test_interrupt_ends_with_130(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("smena.cli.target.Target.look", interrupted)
    assert "smena: interrupted" in bare("job", "list", code=130).stderr


BROKEN = {
    "missing": ("there is no module nowhere_to_be_found", "nowhere_to_be_found:app", None),
    "form": ("module:attribute", "broken", ""),
    "file": ("module:attribute", "./broken.py:app", ""),
    "attribute": ("has no 'ap'; it has the app app", "broken:ap", "from smena import Smena\napp = Smena()"),
    "not an app": ("is a int, not a Smena", "broken:app", "app = 5"),
    "raises": ("broken.py:1: ValueError: no\\x1b luck", "broken:app", "raise ValueError('no\\x1b luck')"),
    "needs": ("ModuleNotFoundError: No module named 'not_there'", "broken:app", "import not_there"),
    "syntax": ("SyntaxError", "broken:app", "def :"),
    "leaves": ("SystemExit: 3", "broken:app", "raise SystemExit(3)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_app_that_cannot_be_used_ends_with_2_and_says_why(name: str, bare: Any, module: Module, here: Path) -> None:
    said, path, text = BROKEN[name]
    if text is not None:
        module("broken", text)
    for words in (["check"], ["worker"], ["job", "list"]):
        result = bare(*words, "-A", path, code=2, SMENA_DSN="")
        assert said in result.stderr
        assert 1 == len(result.stderr.splitlines())


def test_import_error_names_the_folder_that_is_on_the_path(bare: Any, here: Path, module: Module) -> None:
    module("broken", "import not_there")
    assert str(here) in bare("check", "-A", "broken:app", code=2).stderr


def test_worker_and_check_need_an_app(bare: Any) -> None:
    for words in (["worker"], ["check"]):
        assert "SMENA_APP" in bare(*words, code=2).stderr


def run(*words: str, dsn: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "smena", *words],
        env={**os.environ, "SMENA_DSN": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("words", [["job", "list"], ["job", "list", "--json"], ["db", "sql", "--all"], ["--help"]])
def test_nobody_reading_is_no_reason_to_complain(words: list[str], database: str, stock: Any) -> None:
    for _ in range(100):
        stock.put("failed", task="t" * 200)
    process = run(*words, dsn=database)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert "" == process.stderr.read()
    assert 141 == process.wait(30)
    process.stderr.close()


def test_text_that_the_terminal_cannot_show_is_no_error(database: str, stock: Any) -> None:
    stock.put("failed", task="支払い")
    process = subprocess.run(
        [sys.executable, "-m", "smena", "job", "list"],
        env={**os.environ, "SMENA_DSN": database, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert b"\\u652f\\u6255\\u3044" in process.stdout


def test_interrupted_process_ends_with_130(database: str, stock: Any) -> None:
    ids = [stock.put("failed") for _ in range(2)]
    with psycopg.connect(database) as other:
        other.execute("select from smena.job where id = %s for update", [ids[0]])
        process = run("job", "requeue", str(ids[0]), dsn=database)
        while not stock.one("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (130, True) == (process.returncode, said.endswith("smena: interrupted\n"))
    assert "Traceback" not in said
