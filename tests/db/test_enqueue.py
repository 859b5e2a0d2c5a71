"""A job exists if and only if its caller's transaction commits, whatever library the caller's connection is of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from callers import CALLERS, Caller, on_a_loop
from smena import Smena, Task
from smena.errors import RowMoved, SchemaMissing
from smena.testing.databases import copy
from wire import wire

Open = Callable[[str], AbstractAsyncContextManager[Caller]]

TEXT = "Зарплата — 給料 😀 “quoted” \\ 'single' \" :colon :: %s %(x)s $1 ?"


@pytest.fixture(params=CALLERS)
def opened(request: pytest.FixtureRequest) -> Open:
    return CALLERS[request.param]


class Store:
    """What another connection sees, which is what was committed; `pay` has a queue of its own for each test."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.app = Smena(dsn)
        self._since = 0

        @self.app.task(name="pay")
        def pay(n: int, note: str = "") -> None: ...

        self.pay: Task[..., Any] = pay

    def begin(self, test: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            (self._since,) = connection.execute("select coalesce(max(id), 0) from smena.job").fetchone() or (0,)
        self.pay = self.pay.using(queue=test[-100:])

    def rows(self) -> list[dict[str, Any]]:
        """The jobs of this test."""
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            query = "select * from smena.jobs where id > %s order by id"
            return connection.execute(query, [self._since]).fetchall()

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]


@pytest.fixture(scope="module")
def _store(server_dsn: str, _smena_template: str) -> Iterator[Store]:
    # One database for all: making it would take longer than the tests.
    with copy(server_dsn, _smena_template) as dsn:
        store = Store(dsn)
        yield store
        store.app.close()


@pytest.fixture
def store(_store: Store, request: pytest.FixtureRequest) -> Store:
    _store.begin(request.node.name)
    return _store


@on_a_loop
async def test_a_job_exists_once_its_transaction_is_committed(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        job = await caller.enqueue(store.pay, 17)
        assert [] == store.ids()
        await caller.commit()
        assert [job.id] == store.ids()


@on_a_loop
async def test_a_job_does_not_exist_when_its_transaction_is_rolled_back(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        await caller.enqueue(store.pay, 17)
        await caller.enqueue_many(store.pay, [(1,), (2,)])
        await caller.rollback()
        assert [] == store.ids()


@on_a_loop
async def test_a_caller_that_goes_without_commit_leaves_no_job(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        await caller.enqueue(store.pay, 17)
    assert [] == store.ids()


@on_a_loop
async def test_a_rolled_back_savepoint_takes_its_jobs_along_and_no_others(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        async with caller.undone():
            # The first job of a queue also makes the queue's lanes, which vanish with it.
            await caller.enqueue(store.pay, 1)
        second = await caller.enqueue(store.pay, 2)
        async with caller.undone():
            await caller.enqueue(store.pay, 3)
            await caller.enqueue_many(store.pay.using(unique_key="k"), [(4,)])
        third = await caller.enqueue(store.pay.using(unique_key="k"), 5)
        assert third.created
        await caller.commit()
        assert [second.id, third.id] == store.ids()


@on_a_loop
async def test_nothing_is_committed_for_the_caller(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        before = await caller.value("select txid_current()")
        await caller.enqueue(store.pay, 17)
        await caller.enqueue(store.pay.using(unique_key="k"), 17)
        await caller.enqueue_many(store.pay, [(n,) for n in range(5_001)])
        assert before == await caller.value("select txid_current()")


@on_a_loop
async def test_many_jobs_keep_the_order_of_their_calls(store: Store, opened: Open) -> None:
    calls: list[Any] = [(n,) if n % 2 else {"n": n, "note": TEXT} for n in range(300)]
    async with opened(store.dsn) as caller:
        jobs = await caller.enqueue_many(store.pay, calls)
        await caller.commit()
    rows = store.rows()
    assert [job.id for job in jobs] == [row["id"] for row in rows]
    assert list(range(300)) == [row["args"]["n"] for row in rows]
    assert all(job.created for job in jobs)


@on_a_loop
async def test_a_unique_key_gives_the_job_that_is_there(store: Store, opened: Open) -> None:
    once = store.pay.using(unique_key=TEXT)
    async with opened(store.dsn) as caller:
        first = await caller.enqueue(once, 1)
        again = await caller.enqueue(once, 2)
        await caller.commit()
        later = await caller.enqueue_many(once, [(3,), (4,)])
        await caller.commit()
    assert first.created
    assert [(first.id, False)] * 3 == [(job.id, job.created) for job in (again, *later)]
    assert [first.id] == store.ids()


@on_a_loop
async def test_every_option_is_stored_as_given(store: Store, opened: Open) -> None:
    at = datetime(2041, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    queue = f"Lohn/給料 {store.pay.options.queue}"[:100]
    task = store.pay.using(
        queue=queue, priority=-7, run_at=at, expires_in=timedelta(days=9), order_key=TEXT, unique_key="u" * 500,
        unique_for=timedelta(hours=1), idempotency_key="ключ", headers={"trace": "00-4bf9-01", "имя": TEXT},
    )  # fmt: skip
    async with opened(store.dsn) as caller:
        await caller.enqueue(task, 2**53 - 1, note=TEXT)
        await caller.commit()
    (row,) = store.rows()
    expected = {
        "queue": queue, "priority": -7, "run_at": at, "order_key": TEXT, "unique_key": "u" * 500,
        "idempotency_key": "ключ", "headers": {"trace": "00-4bf9-01", "имя": TEXT}, "task": "pay", "state": "blocked",
        "args": {"n": 2**53 - 1, "note": TEXT}, "attempt": 0, "max_attempts": 5,
    }  # fmt: skip
    assert expected == {name: row[name] for name in expected}


@on_a_loop
async def test_a_pause_is_counted_by_the_database_clock(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        job = await caller.enqueue(store.pay.using(run_in=timedelta(minutes=5), expires_in=3600.5), 1)
        await caller.commit()
        with psycopg.connect(store.dsn) as connection:
            row = connection.execute(
                "select v.state, v.run_at - v.created_at, j.expires_at - j.created_at"
                " from smena.jobs v join smena.job j using (id) where id = %s",
                [job.id],
            ).fetchone()
    assert row is not None
    assert "scheduled" == row[0]
    assert abs(row[1] - timedelta(minutes=5)) < timedelta(seconds=1)
    assert abs(row[2] - timedelta(seconds=3600.5)) < timedelta(seconds=1)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@on_a_loop
async def test_a_caller_with_a_snapshot_works_and_is_told_when_it_is_too_old(
    store: Store, opened: Open, level: str
) -> None:
    once = store.pay.using(unique_key="k")
    async with opened(store.dsn) as caller:
        await caller.execute(f"set transaction isolation level {level}")
        await caller.value("select count(*) from smena.job")
        job = await caller.enqueue(store.pay, 1)
        await caller.commit()
        assert [job.id] == store.ids()

        await caller.execute(f"set transaction isolation level {level}")
        await caller.value("select count(*) from smena.job")
        holder = once.enqueue(2)
        with pytest.raises(RowMoved, match=r"40001.*run the whole transaction again"):
            await caller.enqueue(once, 3)
        await caller.rollback()
        # Run again, as it says, it finds the job.
        assert (holder.id, False) == ((again := await caller.enqueue(once, 3)).id, again.created)
        await caller.rollback()


@on_a_loop
async def test_a_new_queue_of_another_transaction_is_no_endless_loop(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        await caller.execute("set transaction isolation level repeatable read")
        await caller.value("select count(*) from smena.job")
        store.pay.enqueue(1)
        with pytest.raises(RowMoved):
            await caller.enqueue(store.pay, 2)
        await caller.rollback()


@on_a_loop
async def test_a_database_without_a_store_is_named_as_such(empty_database: str, opened: Open) -> None:
    store = Store(empty_database)
    async with opened(empty_database) as caller:
        for task in (store.pay, store.pay.using(unique_key="k")):
            with pytest.raises(SchemaMissing, match=r"smena\..* run `smena db migrate`"):
                await caller.enqueue(task, 1)
            await caller.rollback()


@on_a_loop
async def test_a_failed_transaction_stays_failed_and_says_so(store: Store, opened: Open) -> None:
    async with opened(store.dsn) as caller:
        with pytest.raises(Exception, match="division by zero"):
            await caller.execute("select 1/0")
        with pytest.raises(Exception, match="aborted") as raised:
            await caller.enqueue(store.pay, 1)
        assert raised.value.__cause__ is not raised.value
        await caller.rollback()
        await caller.enqueue(store.pay, 1)
        await caller.commit()
    assert 1 == len(store.ids())


@on_a_loop
async def test_another_schema_and_an_empty_search_path(store: Store, opened: Open) -> None:
    other = Smena(store.dsn, schema="shop_jobs")
    other.migrate()

    @other.task(name="pay")
    def pay(n: int) -> None: ...

    async with opened(store.dsn) as caller:
        await caller.execute("set search_path to ''")
        here = await caller.enqueue(pay.using(queue=store.pay.options.queue, unique_key="k", order_key="o"), 1)
        await caller.enqueue(store.pay, 2)
        await caller.commit()
    assert [1] == [row["n"] for row in _column(store.dsn, f"select args from shop_jobs.jobs where id = {here.id}")]
    assert [2] == [row["args"]["n"] for row in store.rows()]
    assert "pay" == other.job(here.id).read()["task"]
    other.close()


@on_a_loop
async def test_an_enqueue_costs_one_round_trip(store: Store, opened: Open) -> None:
    with wire(store.dsn) as line:
        async with opened(line.dsn) as caller:
            # The first makes the queue's lanes; asyncpg also has the statement described then.
            await caller.enqueue(store.pay, 1)
            await caller.enqueue_many(store.pay, [(1,)])
            before = line.answers
            await caller.enqueue(store.pay, 2)
            assert 1 == line.answers - before
            before = line.answers
            await caller.enqueue_many(store.pay, [(n,) for n in range(1000)])
            assert 1 == line.answers - before


def test_django_on_psycopg2(server_dsn: str) -> None:
    """Django takes psycopg2 only where psycopg 3 cannot be imported: a child hides it, from Django alone."""
    if os.environ.get("DJANGO_DRIVER"):
        from django.db.backends.postgresql.psycopg_any import is_psycopg3

        assert not is_psycopg3
        return
    here = Path(__file__)
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "without_psycopg", "-p", "no:cacheprovider", here, "-k", "django"],
        env={**os.environ, "SMENA_TEST_DSN": server_dsn, "DJANGO_DRIVER": "2", "PYTHONPATH": str(here.parents[1])},
        capture_output=True, text=True, timeout=120, cwd=here.parents[2],
    )  # fmt: skip
    assert 0 == child.returncode, child.stdout + child.stderr


def _column(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(query)]  # type: ignore[call-overload]
