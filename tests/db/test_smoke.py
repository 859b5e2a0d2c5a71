"""A short walk through the product: jobs of every ending, enqueued and worked in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from smena import Cancel, JobUnsuccessful, OutcomeUnknown, Permanent, Retry, Smena, Snooze, current_job
from smena._worker.process import Worker, WorkerOptions

pytestmark = pytest.mark.smoke


@pytest.fixture
def app(database: str) -> Iterator[Smena]:
    app = Smena(database)
    yield app
    app.close()


def work(app: Smena) -> Worker:
    worker = Worker(app, WorkerOptions(until_empty=True, concurrency=4))
    asyncio.run(asyncio.wait_for(worker.run(), 30))
    return worker


def test_jobs_of_every_ending(app: Smena) -> None:
    runs: list[tuple[str, int]] = []

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    def in_a_thread(n: int) -> str:
        return f"{n} in {threading.current_thread().name}"

    @app.task(retry=Retry(attempts=3, first=0, jitter=0))
    async def third_time(what: str) -> str:
        runs.append((what, current_job().attempt))
        if what == "works" and current_job().attempt == 3:
            return "at last"
        raise ConnectionError("not yet")

    @app.task
    async def ends(how: str) -> Any:
        match how:
            case "permanent":
                raise Permanent("VALIDATION", "the amount is 0.00")
            case "unknown":
                raise OutcomeUnknown("the answer was lost", probe_key="payment-17")
            case "cancel":
                return Cancel("no longer wanted")
            case "snooze":
                runs.append(("snooze", current_job().attempt))
                return Snooze(0) if runs.count(("snooze", 1)) < 3 else "awake"

    async def enqueue() -> list[int]:
        jobs = [await double.aenqueue(21), await third_time.aenqueue("works")]
        jobs += await ends.aenqueue_many([("permanent",), ("unknown",), ("cancel",), ("snooze",)])
        await app.aclose()
        return [job.id for job in jobs]

    doubled, works, permanent, unknown, cancelled, snoozed = asyncio.run(enqueue())
    threaded, fails = in_a_thread.enqueue(17).id, third_time.enqueue("fails").id
    worker = work(app)

    assert 42 == app.job(doubled).wait(1)
    assert app.job(threaded).wait(1).startswith("17 in smena-")
    assert "at last" == app.job(works).wait(1)
    assert "awake" == app.job(snoozed).wait(1)
    for job, words in (
        (permanent, "is failed: VALIDATION: the amount is 0.00"),
        (fails, "is failed: ERROR: not yet"),
        (unknown, "is unknown: OUTCOME_UNKNOWN: the answer was lost"),
        (cancelled, "is cancelled"),
    ):
        with pytest.raises(JobUnsuccessful, match=words):
            app.job(job).wait(1)
    assert [("works", 1), ("works", 2), ("works", 3)] == sorted(run for run in runs if run[0] == "works")
    assert 3 == len([run for run in runs if run[0] == "fails"])
    assert 3 == worker.failed


def test_a_job_is_worked_if_its_transaction_commits(app: Smena) -> None:
    @app.task
    async def pay(n: int) -> int:
        return n

    with psycopg.connect(app.database.dsn) as connection:
        dropped = pay.enqueue(1, conn=connection)
        connection.rollback()
        kept = pay.enqueue(2, conn=connection)
    work(app)
    assert 2 == app.job(kept.id).wait(1)
    with psycopg.connect(app.database.dsn) as connection:
        assert [(kept.id,)] == connection.execute("select id from smena.jobs").fetchall()
    assert kept.id != dropped.id


def test_jobs_of_one_key_run_one_by_one_in_their_order(app: Smena) -> None:
    running: set[str] = set()
    order: dict[str, list[int]] = {"a": [], "b": []}

    @app.task(order_key=lambda key, n: key)
    async def step(key: str, n: int) -> None:
        assert key not in running
        running.add(key)
        await asyncio.sleep(0.001)
        order[key].append(n)
        running.remove(key)

    step.enqueue_many([(key, n) for n in range(20) for key in "ab"])
    assert 0 == work(app).failed
    assert {"a": list(range(20)), "b": list(range(20))} == order


def test_a_unique_key_is_free_again_when_its_job_is_done(app: Smena) -> None:
    ran: list[int] = []

    @app.task(unique_key=lambda n: "the only one")
    def once(n: int) -> None:
        ran.append(n)

    assert [True, False, False] == [once.enqueue(n).created for n in range(3)]
    work(app)
    assert once.enqueue(3).created
    work(app)
    assert [0, 3] == ran
