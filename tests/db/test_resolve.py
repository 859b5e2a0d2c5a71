"""An unknown job ends only when somebody says what happened."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from smena import OutcomeUnknown, Retry, Smena, current_job
from smena._worker.process import Worker, WorkerOptions


@pytest.fixture
def app(database: str) -> Any:
    app = Smena(database)
    yield app
    app.close()


def query(app: Smena, sql: str, *values: Any) -> list[Any]:
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def work(app: Smena) -> None:
    asyncio.run(asyncio.wait_for(Worker(app, WorkerOptions(until_empty=True)).run(), 60))


@pytest.mark.parametrize(("outcome", "state"), [("done", "done"), ("failed", "failed"), ("retry", "done")])
def test_an_unknown_job_is_resolved_with_a_reason_and_on_record(app: Smena, outcome: str, state: str) -> None:
    calls = []

    @app.task(order_key="k", retry=Retry(attempts=1))
    def pay(n: int) -> None:
        calls.append((n, current_job().idempotency_key))
        if n == 1 and len(calls) == 1:
            raise OutcomeUnknown("the answer is lost")

    first, second = (pay.enqueue(n).id for n in (1, 2))
    work(app)
    assert ["unknown", "blocked"] == [app.job(id).state for id in (first, second)], "an unknown head blocks its key"
    assert "refused" in query(app, "select smena.resolve(%s, %s, '')", first, outcome)[0][0]
    assert "refused" in query(app, "select smena.resolve(%s, 'maybe', 'x')", first)[0][0]
    assert "refused" in query(app, "select smena.resolve(%s, %s, 'x')", second, outcome)[0][0]
    assert "resolved" == query(app, "select smena.resolve(%s, %s, 'asked the bank')", first, outcome)[0][0]
    work(app)
    assert [state, "done"] == [app.job(id).state for id in (first, second)]
    assert ([1, 1, 2] if outcome == "retry" else [1, 2]) == [n for n, _ in calls]
    assert len({key for n, key in calls if n == 1}) == 1, "the same key when it runs again"
    assert [("resolve", "asked the bank")] == query(app, "select action, reason from smena.audit")


def test_counts_say_zero_when_nothing_runs_any_more(app: Smena) -> None:
    from smena._drivers.psycopg import execute
    from smena._ops.operation import Query

    @app.task
    def nothing() -> None: ...

    nothing.enqueue()
    with psycopg.connect(app.database.dsn, autocommit=True) as connection:
        queue = query(app, "select id from smena.queues")[0][0]
        connection.execute(
            "insert into smena.queue_counts values (%s, 'running', 8, false, 1, clock_timestamp())", [queue]
        )
        execute(connection, Query("duties/count", {"cap": 100}), "smena")
    counts = dict(query(app, "select state, count from smena.queue_stats"))
    assert (0, 1) == (counts["running"], counts["ready"])
    independent = dict(query(app, "select state, count(*) from smena.jobs group by 1"))
    assert independent == {state: n for state, n in counts.items() if n}
