"""Faults that others reported in public, as black-box scenarios; each name begins with the scenario's number.

Those with killed, paused or cut-off processes are in tests/crash.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

from smena import Permanent, Retry, Smena, current_job
from smena._worker.process import Worker, WorkerOptions


@pytest.fixture
def app(database: str) -> Any:
    app = Smena(database, lease=2)
    yield app
    app.close()


def work(app: Smena, **options: Any) -> Worker:
    """Works until nothing is ready, running or due."""
    worker = Worker(app, WorkerOptions(until_empty=True, **options))
    asyncio.run(asyncio.wait_for(worker.run(), 60))
    return worker


def query(app: Smena, sql: str, *values: Any) -> list[Any]:
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def test_b32_arguments_that_differ_in_a_nested_value_are_two_jobs(app: Smena) -> None:
    @app.task(unique_key=lambda order: f"{order}")
    def ship(order: dict[str, Any]) -> None: ...

    first = ship.enqueue({"id": 1, "lines": [{"sku": "a", "n": 1}]})
    second = ship.enqueue({"id": 1, "lines": [{"sku": "a", "n": 2}]})
    again = ship.enqueue({"id": 1, "lines": [{"sku": "a", "n": 2}]})
    assert (True, True, False) == (first.created, second.created, again.created)
    assert second.id == again.id


def test_b33_while_a_job_runs_its_key_admits_at_most_one_more(app: Smena) -> None:
    answers = []
    running = []
    most = []

    @app.task(unique_key="report", unique_for="waiting", order_key="report")
    async def report() -> None:
        running.append(1)
        most.append(len(running))
        if len(answers) == 0:
            for _ in range(4):
                answers.append((await report.aenqueue()).created)
        running.pop()

    assert report.enqueue().created
    assert not report.enqueue().created
    work(app)
    assert [True, False, False, False] == answers
    assert [("done", 2)] == query(app, "select state, count(*) from smena.jobs group by 1")
    assert 1 == max(most), "never two at once"


def test_b34_a_crash_recovers_while_a_second_job_waits_with_the_same_key(app: Smena) -> None:
    @app.task(unique_key="k", unique_for="waiting", retry=Retry(attempts=3, first=0, jitter=0))
    async def sync() -> None:
        if current_job().id == first and current_job().attempt == 1:
            assert (await sync.aenqueue()).created, "the running one does not hold the key"
            raise RuntimeError("crash")

    first = sync.enqueue().id
    work(app)
    assert [("done", 2), ("done", 1)] == query(app, "select state, attempt from smena.jobs order by id")


def test_b35_a_key_whose_first_job_is_backed_off_waits_and_says_so(app: Smena) -> None:
    ran = []

    @app.task(order_key="customer-4", retry=Retry(attempts=3, first=3600, jitter=0))
    def first() -> None:
        ran.append("first")
        raise RuntimeError("later")

    @app.task(order_key="customer-4")
    def second() -> None:
        ran.append("second")

    first.enqueue()
    waiting = second.enqueue()
    work(app)
    assert ["first"] == ran
    assert [("scheduled", 1), ("blocked", 0)] == query(app, "select state, attempt from smena.jobs order by id")
    query(app, "update smena.jobs set run_at = clock_timestamp() where state = 'scheduled'")
    query(app, "select smena.cancel(%s, 'make way')", query(app, "select min(id) from smena.jobs")[0][0])
    work(app)
    assert "done" == app.job(waiting.id).state


def test_b38_a_requeued_job_has_its_payload_a_new_attempt_and_its_history(app: Smena) -> None:
    broken = [True]
    seen = []

    @app.task(retry=Retry(attempts=2, first=0, jitter=0))
    def charge(purchase: int, note: str) -> None:
        if broken[0]:
            raise RuntimeError("the provider is down")
        seen.append((purchase, note, current_job().attempt))

    ids = [enqueued.id for enqueued in charge.enqueue_many([(n, f"счёт {n}") for n in range(5)])]
    work(app)
    keys = query(app, "select id, idempotency_key from smena.jobs order by id")
    assert [("failed", 2)] * 5 == query(app, "select state, attempt from smena.jobs")
    broken[0] = False
    assert [("requeued",)] == query(app, "select smena.requeue(%s, 'the provider is back')", ids[0])
    query(app, "select smena.requeue(id, 'all of them') from smena.jobs where state = 'failed'")
    work(app)
    assert [(n, f"счёт {n}", 1) for n in range(5)] == sorted(seen)
    assert [("done", 1, 3, 1)] * 5 == query(app, "select state, attempt, attempts_total, requeues from smena.jobs")
    assert [(2,)] * 5 == query(app, "select count(*) from smena.attempts where kind = 'ERROR' group by job_id")
    assert keys == query(app, "select id, idempotency_key from smena.jobs order by id")
    assert 5 == query(app, "select count(*) from smena.audit where action = 'requeue'")[0][0]


def _finished(app: Smena, rows: int) -> None:
    """So many done jobs in the log, without running them."""
    query(app, "select smena.lane('default', 0)")
    query(
        app,
        "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args, finished_at)"
        " select l.id, l.queue, s.pos, s.pos, 'd', 5, 'old', '{}', clock_timestamp()"
        " from smena.lanes l, (select nextval('smena.pos_seq') as pos from generate_series(1, %s)) s"
        " where l.id = smena.lane('default', 0)",
        rows,
    )


async def _until_the_floor_is_beyond(app: Smena, pos: int) -> None:
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while not query(app, "select 1 from smena.floors where lane = 0 and floor >= %s", pos):
            await asyncio.sleep(0.1)
    worker.stop()
    await running


@pytest.mark.slow
def test_b41_a_worker_starts_at_once_on_a_long_history(app: Smena) -> None:
    """A claim and a start look at nothing that lies below the floor; the floor is found by the duty once."""

    @app.task
    def nothing() -> None: ...

    _finished(app, 300_000)
    nothing.enqueue()
    asyncio.run(_until_the_floor_is_beyond(app, 300_000))
    nothing.enqueue()
    began = time.monotonic()
    work(app)
    assert time.monotonic() - began < 10, "a start does not read the history again"


@pytest.mark.slow
def test_b42_scheduled_and_failed_rows_are_not_in_a_claims_way(app: Smena) -> None:
    @app.task
    def nothing() -> None: ...

    query(app, "select smena.lane('default', 0)")
    query(
        app,
        "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args, run_at)"
        " select l.id, l.queue, -s.id, s.id, case when s.id %% 10 = 0 then 'f'::\"char\" else 's' end, 5, 'later',"
        " '{}', clock_timestamp() + interval '1 day'"
        " from smena.lanes l, (select nextval('smena.pos_seq') as id from generate_series(1, %s)) s"
        " where l.id = smena.lane('default', 0)",
        100_000,
    )
    assert 100_000 == query(app, "select count(*) from smena.job")[0][0]
    nothing.enqueue()
    worker = work(app)
    assert 1 == worker.slots.finished
    with psycopg.connect(app.database.dsn) as connection:
        plan = connection.execute(
            "explain (analyze, buffers, format json) select pos from smena.job"
            " where lane = smena.lane('default', 0) and pos > 100000 and state = 'r' order by pos limit 100"
        ).fetchone()
    assert plan is not None
    buffers = plan[0][0]["Plan"]["Shared Hit Blocks"] + plan[0][0]["Plan"]["Shared Read Blocks"]
    assert buffers < 300


def test_g67_a_lost_answer_is_one_charge_with_a_key_and_unknown_without(app: Smena) -> None:
    from smena import OutcomeUnknown, Transient

    ledger: dict[str, int] = {}
    calls: list[str] = []

    def provider(key: str) -> None:
        calls.append(key)
        ledger.setdefault(key, 29)
        if calls.count(key) == 1:
            raise ConnectionResetError("the answer is lost")

    @app.task(retry=Retry(attempts=3, first=0, jitter=0))
    def with_key() -> None:
        try:
            provider(current_job().idempotency_key)
        except ConnectionResetError as error:
            raise Transient("EXTERNAL_TIMEOUT") from error

    @app.task(retry=Retry(attempts=3, first=0, jitter=0))
    def without_key() -> None:
        try:
            provider(f"no key {current_job().id}")
        except ConnectionResetError as error:
            raise OutcomeUnknown("the answer is lost", probe_key="17") from error

    @app.task
    def refused() -> None:
        raise Permanent("VALIDATION")

    jobs = [with_key.enqueue().id, without_key.enqueue().id, refused.enqueue().id]
    work(app)
    assert ["done", "unknown", "failed"] == [app.job(job).state for job in jobs]
    assert 2 == len(ledger), "one charge each"
    assert 2 == calls.count(calls[0])
    refusal = query(app, "select smena.requeue(%s, 'blindly')", jobs[1])[0][0]
    assert refusal.startswith("refused: ")
