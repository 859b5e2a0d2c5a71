"""The app that the crash tests' workers run. Its handlers leave a trace of each attempt in the table `effects`."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import psycopg

from smena import Cancel, OutcomeUnknown, Permanent, Retry, Smena, Snooze, current_job

app = Smena()
LET_GO = os.environ.get("LET_GO", os.devnull)
EFFECTS = os.environ.get("EFFECTS_DSN", "")
NOTES = os.open(os.environ.get("NOTES", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

_QUICK = Retry(attempts=8, first=0.1, factor=1.5, cap=1, jitter=0.5)


class Trace:
    """One row of `effects`: an attempt began, and perhaps ended."""

    def __init__(self) -> None:
        job = current_job()
        with psycopg.connect(EFFECTS, autocommit=True) as connection:
            connection.execute(
                "insert into effects (job, token, attempt, pid) values (%s, %s, %s, %s)",
                [job.id, job.token, job.attempt, os.getpid()],
            )
        self.token = job.token

    def end(self) -> int:
        with psycopg.connect(EFFECTS, autocommit=True) as connection:
            connection.execute("update effects set ended = clock_timestamp() where token = %s", [self.token])
        return self.token


@app.task(queue="shop", retry=_QUICK)
async def work(seconds: float) -> int:
    trace = await asyncio.to_thread(Trace)
    await asyncio.sleep(seconds)
    return await asyncio.to_thread(trace.end)


@app.task(queue="shop", retry=_QUICK)
async def long_at_first(seconds: float) -> int:
    return await work.function(seconds if current_job().attempt == 1 else 0.0)


@app.task(queue="shop", retry=_QUICK)
async def held() -> int:
    """Its first attempt runs until the test lets go."""
    trace = await asyncio.to_thread(Trace)
    while current_job().attempt == 1 and not await asyncio.to_thread(os.path.exists, LET_GO):
        await asyncio.sleep(0.05)
    return await asyncio.to_thread(trace.end)


@app.task(queue="shop", retry=_QUICK)
async def stubborn() -> int:
    """Does not let itself be cancelled in its first attempt."""
    trace = await asyncio.to_thread(Trace)
    while current_job().attempt == 1:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    return await asyncio.to_thread(trace.end)


@app.task(queue="shop", retry=_QUICK)
async def note(fails: bool = False) -> int:
    """Leaves its trace in a file: quick, so that a worker spends its time in claims and finishes."""
    job = current_job()
    os.write(NOTES, f"{job.id} {job.token} {job.attempt} {os.getpid()}\n".encode())
    if fails and job.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return job.token


@app.task(queue="shop", retry=_QUICK)
def work_in_thread(seconds: float) -> int:
    trace = Trace()
    time.sleep(seconds)
    return trace.end()


@app.task(queue="shop", retry=_QUICK, order_key=lambda key, seconds: key)
async def ordered(key: str, seconds: float) -> int:
    return await work.function(seconds)


@app.task(queue="shop", retry=_QUICK)
async def fails_first(seconds: float) -> int:
    if current_job().attempt == 1:
        raise RuntimeError("the first attempt fails")
    return await work.function(seconds)


@app.task(queue="shop", retry=_QUICK)
async def kills_its_worker() -> None:
    await asyncio.to_thread(Trace)
    os._exit(9)


@app.task(queue="shop", repeat=False)
async def must_not_repeat(seconds: float) -> int:
    return await work.function(seconds)


@app.task(queue="shop", timeout=0.3, retry=Retry(attempts=2, first=0.05, jitter=0))
async def too_slow() -> None:
    await asyncio.sleep(60)


@app.task(queue="shop")
async def refuses() -> None:
    raise Permanent("VALIDATION", "the amount is 0.00")


@app.task(queue="shop")
async def unsure() -> None:
    raise OutcomeUnknown("the answer was lost")


@app.task(queue="shop")
async def comes_later(seconds: float) -> Snooze | int:
    with psycopg.connect(EFFECTS, autocommit=True) as connection:
        seen = connection.execute("select count(*) from effects where job = %s", [current_job().id]).fetchone()
    trace = await asyncio.to_thread(Trace)
    if seen is not None and seen[0] == 0:
        return Snooze(seconds)
    return await asyncio.to_thread(trace.end)


@app.task(queue="shop")
async def gives_up() -> Cancel:
    return Cancel("the customer left")
