"""What mypy says of right and wrong calls, in a user's program, with the plugin and without."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from datetime import timedelta
from decimal import Decimal
from typing import Any, ParamSpec, TypeVar

from smena import Enqueued, Smena, Task, current_job

app = Smena()
P = ParamSpec("P")
R = TypeVar("R")


@app.task(queue="payments", timeout=timedelta(seconds=30), order_key=lambda purchase, amount: f"{purchase}")
async def charge(purchase: int, amount: Decimal, note: str = "") -> str:
    return current_job().idempotency_key


@app.task
def nothing() -> int:
    return 1


@app.task()
def much(first: int, *rest: str, flag: bool, **more: float) -> None: ...


async def right(connection: Any) -> None:
    job: Enqueued = charge.enqueue(17, Decimal("29.33"))
    job = charge.enqueue(17, amount=Decimal(1), note="x", conn=connection)
    job = await charge.aenqueue(17, Decimal(1), conn=connection)
    job = await charge.using(conn=connection, run_in=timedelta(hours=1)).aenqueue(17, Decimal(1), "note")
    jobs: list[Enqueued] = charge.enqueue_many([(17, Decimal(1)), {"purchase": 18, "amount": Decimal(2)}])
    jobs = await charge.aenqueue_many([], conn=connection)
    nothing.enqueue()
    nothing.enqueue(conn=connection)
    much.enqueue(1, "a", "b", flag=True, other=1.5, conn=connection)
    text: str = await charge(17, Decimal(1))
    number: int = nothing()
    enqueue = charge.enqueue
    enqueue(17, Decimal(1))
    print(job, jobs, text, number)


def passed_on(task: Task[P, R], loose: Task[..., Any], connection: Any, *args: P.args, **kwargs: P.kwargs) -> None:
    task.enqueue(*args, **kwargs)
    task.using(conn=connection).enqueue(*args, **kwargs)
    loose.enqueue(1, 2, x=3, conn=connection)


async def wrong(connection: Any) -> None:
    charge.enqueue("17", Decimal(1))  # wrong
    charge.enqueue(17)  # wrong
    charge.enqueue()  # wrong
    charge.enqueue(17, Decimal(1), "note", 1)  # wrong
    charge.enqueue(17, Decimal(1), colour="red")  # wrong
    charge.enqueue(17, 29.33)  # wrong
    charge.using(conn=connection).enqueue("17", Decimal(1))  # wrong
    await charge.using(conn=connection).aenqueue(17)  # wrong
    await charge.aenqueue("17", Decimal(1))  # wrong
    nothing.enqueue(1)  # wrong
    much.enqueue(1, 2, flag=True)  # wrong
    much.enqueue(1)  # wrong
    charge.using(priority="high")  # wrong
    charge.using(colour="red")  # wrong
    charge.enqueue_many(17)  # wrong
    await charge("17", Decimal(1))  # wrong
    nothing(1)  # wrong
    number: int = await charge(17, Decimal(1))  # wrong
    app.task(timeout="30")(nothing.function)  # wrong
    print(number)


async def wrong_with_conn(connection: Any) -> None:
    charge.enqueue("17", Decimal(1), conn=connection)  # wrong, says the plugin
    charge.enqueue(17, conn=connection)  # wrong, says the plugin
    charge.enqueue(conn=connection)  # wrong, says the plugin
    charge.enqueue(17, Decimal(1), colour="red", conn=connection)  # wrong, says the plugin
    charge.enqueue(17, Decimal(1), "note", 1, conn=connection)  # wrong, says the plugin
    await charge.aenqueue(17, 29.33, conn=connection)  # wrong, says the plugin
    nothing.enqueue(1, conn=connection)  # wrong, says the plugin
    much.enqueue(1, flag=True, other="1", conn=connection)  # wrong, says the plugin
"""


@pytest.mark.parametrize("plugin", [False, True])
def test_mypy_rejects_the_wrong_calls_and_no_others(tmp_path: Path, plugin: bool) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    settings = "[mypy]\nstrict = true\n" + ("plugins = smena.mypy_plugin\n" if plugin else "")
    (tmp_path / "mypy.ini").write_text(settings)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "shop.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    marks = ("  # wrong", "  # wrong, says the plugin") if plugin else ("  # wrong",)
    wrong = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(marks)]
    said = {int(n) for n in re.findall(r"^shop.py:(\d+): error: ", found.stdout, re.MULTILINE)}
    assert wrong == sorted(said), found.stdout + found.stderr
