"""The app of the benchmarks: a task that does nothing. `fill N` stores jobs, `work C` drains them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from smena import Smena
from smena._worker.process import Worker, WorkerOptions

app = Smena()


@app.task
async def noop(n: int, text: str) -> None:
    pass


def fill(jobs: int) -> None:
    app.migrate()
    text = "abcdefghijklmnopqrstuvwxyz" * 4
    for start in range(0, jobs, 5_000):
        noop.enqueue_many([(n, text) for n in range(start, min(start + 5_000, jobs))])


def run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(int(sys.argv[2]))
    else:
        run(Worker(app, WorkerOptions(concurrency=int(sys.argv[2]), until_empty=True)).run())
