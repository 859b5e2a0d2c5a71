"""`smena worker` as a process of its own: what it runs, how it stops, what it says. And `smena worker list`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SHOP = """
import asyncio, logging, time
from smena import OutcomeUnknown, Permanent, Smena

app = Smena()
log = logging.getLogger("shop")

@app.task(name="work", queue="payments")
def work(n: int) -> int:
    log.info("working on %s \\x1b[31m", n)
    return n

@app.task(name="fail", queue="payments")
def fail() -> None:
    raise Permanent("VALIDATION", "no")

@app.task(name="doubt", queue="payments")
def doubt() -> None:
    raise OutcomeUnknown("who knows")

@app.task(name="wait", queue="mail")
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task(name="loop", queue="mail")
async def loop() -> str:
    return f"{type(asyncio.get_running_loop()).__module__}"
"""


class Shop:
    """The shop in a folder, jobs for it, and workers on it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "wshop.py").write_text(SHOP)

    def worker(self, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "smena", "worker", "-A", "wshop:app", *options],
            cwd=self.folder,
            env={**os.environ, "SMENA_DSN": self.dsn},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def work(self, *options: str, code: int = 0) -> str:
        """Works until empty; returns what the worker logged."""
        process = self.worker("--until-empty", *options)
        out, said = process.communicate(timeout=60)
        assert (code, "") == (process.returncode, out), said
        return said


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """Reads the log until a line has these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"the worker ended without saying {words!r}")


@pytest.fixture
def shop(here: Path, database: str) -> Iterator[Shop]:
    shop = Shop(here, database)
    yield shop
    for process in shop.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.smoke
def test_until_empty_runs_what_waits_and_ends_with_0(shop: Shop, stock: Any) -> None:
    ids = [stock.put("ready", task="work", args={"n": n}) for n in range(3)]
    said = shop.work()
    assert ["done"] * 3 == stock.states(*ids)
    assert "INFO smena: worker.started" in said
    assert f"INFO shop: working on 1 \\x1b[31m [job {ids[1]} work]" in said


@pytest.mark.parametrize("task", ["fail", "doubt"])
def test_until_empty_ends_with_1_when_a_job_failed_or_is_unknown(task: str, shop: Shop, stock: Any) -> None:
    stock.put("ready", task=task)
    shop.work(code=1)


def test_only_the_queues_named_are_worked(shop: Shop, stock: Any) -> None:
    here, there = (
        stock.put("ready", task="work", args={"n": 1}),
        stock.put("ready", task="wait", queue="mail", args={"seconds": 0.0}),
    )
    shop.work("-q", "payments,other")
    assert ["done", "ready"] == stock.states(here, there)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_ends_with_0(number: signal.Signals, shop: Shop, stock: Any) -> None:
    running = stock.put("ready", task="wait", queue="mail", args={"seconds": 1.0})
    process = shop.worker("--grace", "20")
    line_with(process, "worker.started")
    _until(lambda: stock.state(running) == "running")
    process.send_signal(number)
    assert 0 == process.wait(30)
    assert "done" == stock.state(running)


def test_second_signal_hands_back_and_costs_no_attempt(shop: Shop, stock: Any) -> None:
    running = stock.put("ready", task="wait", queue="mail", args={"seconds": 600.0})
    process = shop.worker("--grace", "300")
    line_with(process, "worker.started")
    _until(lambda: stock.state(running) == "running")
    # Two of one kind could be delivered as one.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert 0 == process.wait(30)
    assert [("ready", 0)] == stock.sql("select state, attempt from smena.jobs")


def test_grace_bounds_the_drain(shop: Shop, stock: Any) -> None:
    running = stock.put("ready", task="wait", queue="mail", args={"seconds": 600.0})
    process = shop.worker("--grace", "0")
    line_with(process, "worker.started")
    _until(lambda: stock.state(running) == "running")
    process.terminate()
    assert 0 == process.wait(30)
    assert "ready" == stock.state(running)


def test_json_log_is_one_object_a_line_with_job_and_task(shop: Shop, stock: Any) -> None:
    work, fail = stock.put("ready", task="work", args={"n": 5}), stock.put("ready", task="fail")
    lines = [json.loads(line) for line in shop.work("--log-format", "json", code=1).splitlines()]
    mine = next(line for line in lines if line["logger"] == "shop")
    assert ("working on 5 \x1b[31m", work, "work", 1) == (mine["message"], mine["job"], mine["task"], mine["attempt"])
    failed = next(line for line in lines if line.get("event") == "job.failed")
    assert (fail, "fail", "ERROR") == (failed["job"], failed["task"], failed["level"])


def test_log_level_is_obeyed(shop: Shop, stock: Any) -> None:
    stock.put("ready", task="work", args={"n": 1})
    assert "" == shop.work("--log-level", "error")
    stock.put("ready", task="work", args={"n": 1})
    assert "jobs.finished" in shop.work("--log-level", "debug")


def test_app_that_set_up_its_own_logging_keeps_it(shop: Shop, stock: Any, here: Path) -> None:
    with (here / "wshop.py").open("a") as file:
        file.write("logging.basicConfig(format='mine %(message)s', level='INFO')\n")
    stock.put("ready", task="work", args={"n": 1})
    said = shop.work()
    assert "mine worker.started" in said
    assert "INFO smena" not in said
    assert "INFO smena" in shop.work("--log-format", "text")


def test_loop_is_uvloop_where_it_can_be_imported(shop: Shop, stock: Any) -> None:
    pytest.importorskip("uvloop")
    id = stock.put("ready", task="loop", queue="mail")
    shop.work()
    assert "uvloop" == stock.one("select result from smena.jobs where id = %s", id)


def test_worker_that_cannot_start_says_why_and_ends_with_its_code(shop: Shop, stock: Any) -> None:
    stock.sql("update smena.installation set database_oid = 1")
    assert "smena db adopt" in shop.work(code=4)


def test_list_shows_who_works(shop: Shop, smena: Any) -> None:
    process = shop.worker("-q", "payments,mail", "--concurrency", "7", "--release", "v1.2", "--lease", "9")
    line_with(process, "worker.started")
    [item] = smena.json("worker", "list")["items"]
    wanted = {"pid": process.pid, "release": "v1.2", "queues": ["payments", "mail"], "concurrency": 7, "lease": 9}
    assert wanted == {key: item[key] for key in wanted}
    assert ("working", 0) == (item["state"], item["running"])
    out = smena("worker", "list").stdout
    for part in (item["name"], "working", "0/7", "payments, mail", "v1.2"):
        assert part in out
    process.terminate()
    assert 0 == process.wait(30)
    assert "no workers" in smena("worker", "list").stderr


def test_list_has_one_line_per_process_and_counts_what_it_runs(stock: Any, smena: Any) -> None:
    stock.worker("a:1:aa", 11)
    stock.worker("a:1:aa", 12, closed=True)
    stock.worker("b:2:bb", 13, lease=-5, queues=[])
    stock.sql("update smena.workers set stopping = true where incarnation = 12")
    id = stock.put("running")
    stock.sql("update smena.claims set incarnation = 12")
    stock.sql("update smena.job set worker = 12 where id = %s", id)
    stock.sql("delete from smena.workers where name = 'host:1:aaaa'")
    items = smena.json("worker", "list")["items"]
    assert [("a:1:aa", "stopping", 1), ("b:2:bb", "expired", 0)] == [
        (item["name"], item["state"], item["running"]) for item in items
    ]
    assert " all " in smena("worker", "list").stdout


def test_options_of_the_worker_are_checked(bare: Any) -> None:
    for wrong in (["--concurrency", "0"], ["--lease", "1"], ["--grace", "-1"], ["-q", ","], ["--log-format", "xml"]):
        assert "Invalid value" in bare("worker", "-A", "x:y", *wrong, code=2).stderr


def _until(true: Callable[[], Any]) -> None:
    """Waits for the database to say so; the test's own time limit bounds it."""
    import time

    while not true():
        time.sleep(0.02)
