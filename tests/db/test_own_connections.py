"""Without `conn` the app uses connections of its own: few, fresh, and none left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from callers import on_a_loop
from smena import Smena, Task
from smena.errors import ConfigurationError, DatabaseUnavailable, SchemaMissing
from wire import wire


class Store:
    def __init__(self, dsn: str, **options: Any) -> None:
        self.dsn = dsn
        self.app = Smena(dsn, **options)

        @self.app.task(name="pay")
        def pay(n: int) -> None: ...

        self.pay: Task[..., Any] = pay

    def value(self, query: str, *values: Any) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return (connection.execute(query, values or None).fetchone() or [None])[0]  # type: ignore[call-overload]

    def run(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    @property
    def jobs(self) -> int:
        return int(self.value("select count(*) from smena.job"))

    @property
    def connections(self) -> int:
        """Of the app; ours is another one."""
        return int(self.value("select count(*) from pg_stat_activity where application_name = 'smena'" + _HERE))

    def none_left(self) -> None:
        """The server needs a moment to notice that a connection was closed."""
        until = time.monotonic() + 10
        while self.connections:
            assert time.monotonic() < until, "connections are left"
            time.sleep(0.01)


_HERE = " and datname = current_database()"


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    threads = set(threading.enumerate())
    store = Store(database)
    yield store
    store.app.close()
    store.none_left()
    assert set() == {thread for thread in threading.enumerate() if "asyncio" not in thread.name} - threads


def test_enqueue_commits_by_itself_and_uses_one_connection_again(store: Store) -> None:
    for n in range(5):
        store.pay.enqueue(n)
        assert n + 1 == store.jobs
    assert 1 == store.connections


def test_close_leaves_nothing_and_the_next_use_opens_again(store: Store) -> None:
    for n in range(3):
        store.pay.enqueue(n)
        assert 1 == store.connections
        store.app.close()
        store.none_left()
    assert 3 == store.jobs


@on_a_loop
async def test_aclose_leaves_nothing_and_the_next_use_opens_again(store: Store) -> None:
    for n in range(3):
        await store.pay.aenqueue(n)
        assert 1 == store.connections
        await store.app.aclose()
        store.none_left()
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert 3 == store.jobs


def test_threads_share_a_few_connections(store: Store) -> None:
    barrier = threading.Barrier(16)

    def enqueue(n: int) -> None:
        barrier.wait()
        for _ in range(5):
            store.pay.enqueue(n)

    threads = [threading.Thread(target=enqueue, args=[n]) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 80 == store.jobs
    assert store.connections <= 4


@on_a_loop
async def test_many_calls_at_once_share_a_few_connections(store: Store) -> None:
    await asyncio.gather(*[store.pay.aenqueue(n) for n in range(40)])
    assert 40 == store.jobs
    assert store.connections <= 4
    await store.app.aclose()
    store.none_left()


def test_one_event_loop_after_another_leaves_at_most_the_last_ones_connections(store: Store) -> None:
    async def twice() -> None:
        await asyncio.gather(store.pay.aenqueue(1), store.pay.aenqueue(2))

    for _ in range(10):
        asyncio.run(twice())
    assert 20 == store.jobs
    assert store.connections <= 4
    store.app.close()
    store.none_left()


def test_loops_in_several_threads_have_pools_of_their_own(store: Store) -> None:
    barrier = threading.Barrier(3)

    async def enqueue() -> None:
        await store.pay.aenqueue(1)
        await asyncio.to_thread(barrier.wait)
        await store.pay.aenqueue(2)
        await store.app.aclose()

    threads = [threading.Thread(target=lambda: asyncio.run(enqueue())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 6 == store.jobs


def test_a_plain_enqueue_is_one_round_trip_and_many_are_whole(store: Store) -> None:
    with wire(store.dsn) as line:
        far = Store(line.dsn)
        far.pay.enqueue(0)
        before = line.answers
        far.pay.enqueue(1)
        assert 1 == line.answers - before
        before = line.answers
        far.pay.enqueue_many([(1,), (2,)])
        assert 3 == line.answers - before  # with begin and commit
        before = line.answers
        far.app.job(1).read()
        assert 1 == line.answers - before
        far.app.close()


def test_many_jobs_are_stored_all_or_none(store: Store) -> None:
    store.pay.enqueue(0)
    store.run(
        "create function boom() returns trigger language plpgsql as $$ begin"
        " if new.args->>'n' = '5500' then raise 'boom'; end if; return new; end $$"
    )
    store.run("create trigger boom before insert on smena.job for each row execute function boom()")
    with pytest.raises(psycopg.errors.RaiseException, match="boom"):
        store.pay.enqueue_many([(n,) for n in range(6_000)])
    assert 1 == store.jobs

    async def many() -> None:
        await store.pay.aenqueue_many([(n,) for n in range(6_000)])

    with pytest.raises(psycopg.errors.RaiseException, match="boom"):
        asyncio.run(many())
    assert 1 == store.jobs


# Trouble


def test_connections_that_the_server_ended_are_not_used(store: Store) -> None:
    barrier = threading.Barrier(4)

    def together() -> None:
        barrier.wait()
        store.pay.enqueue(1)

    threads = [threading.Thread(target=together) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = store.jobs
    for _ in range(3):
        ended = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = 'smena'"
        assert store.value(ended + _HERE) > 0
        began = time.monotonic()
        store.pay.enqueue(2)
        assert time.monotonic() - began < 5
    assert before + 3 == store.jobs


@on_a_loop
async def test_async_connections_that_the_server_ended_are_not_used(store: Store) -> None:
    await asyncio.gather(*[store.pay.aenqueue(1) for _ in range(8)])
    for _ in range(3):
        ended = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = 'smena'"
        assert store.value(ended + _HERE) > 0
        await store.pay.aenqueue(2)
    assert 11 == store.jobs
    await store.app.aclose()


def test_a_connection_lost_in_the_middle_leaves_open_whether_the_job_is_there(store: Store) -> None:
    with wire(store.dsn) as line:
        far = Store(line.dsn)
        far.pay.enqueue(0)
        line.lose_answer = True
        with pytest.raises(DatabaseUnavailable, match=r"whether the statement took effect is not known"):
            far.pay.enqueue(1)
        # It is there, and nobody but the server knew.
        assert 2 == store.jobs
        far.pay.enqueue(2)
        line.lose_answer = True
        with pytest.raises(DatabaseUnavailable, match=r"whether the statement took effect is not known"):
            far.pay.enqueue_many([(3,), (4,)])
        assert 3 == store.jobs
        far.pay.enqueue(5)
        far.app.close()


def test_an_unreachable_server_is_told_at_once(tmp_path: Any) -> None:
    store = Store(f"postgresql://me:secret@/nowhere?host={tmp_path}")
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="cannot be reached") as raised:
            store.pay.enqueue(1)
        assert "secret" not in str(raised.value)
        with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
            asyncio.run(store.pay.aenqueue(1))
    store.app.close()


def test_a_server_that_went_away_is_named_at_once(store: Store) -> None:
    with wire(store.dsn) as line:
        far = Store(line.dsn)
        far.pay.enqueue(0)
        line.hang_up()
        with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
            far.pay.enqueue(1)
        far.app.close()
    assert 1 == store.jobs


def test_a_call_that_finds_all_connections_in_use_says_so(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smena.database._PATIENCE", 0.1)
    store = Store(database, pool_size=1)
    with store.app.database.connection(), pytest.raises(DatabaseUnavailable, match=r"all 1 connections .* pool_size="):
        store.pay.enqueue(1)

    async def two() -> None:
        async with store.app.database._aown():
            await store.pay.aenqueue(1)

    with pytest.raises(DatabaseUnavailable, match=r"all 1 connections .* pool_size="):
        asyncio.run(two())
    store.app.close()
    store.none_left()


def test_a_connection_in_use_while_the_app_is_closed_ends_with_its_use(store: Store) -> None:
    with store.app.database.connection() as own:
        store.app.close()
        own.execute("select 1")
    store.none_left()


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_an_app_that_nobody_closes_leaves_nothing_behind(store: Store) -> None:
    forgotten = Store(store.dsn)
    forgotten.pay.enqueue(1)
    asyncio.run(forgotten.pay.aenqueue(1))
    del forgotten
    gc.collect()
    store.none_left()


def test_statements_run_unprepared_behind_a_pooler_that_swaps_servers(store: Store) -> None:
    for n in range(10):
        store.pay.enqueue(n)
    with store.app.database._own() as own:
        # What such a pooler does: the server behind our connection is another one, which knows other statements.
        own.execute("deallocate all", prepare=False)
        for name in range(5):
            own.pgconn.exec_(b"prepare _pg3_%d as select 1" % name)
    for n in range(10):
        store.pay.enqueue(n)
    assert 20 == store.jobs


def test_no_store_no_job(empty_database: str) -> None:
    store = Store(empty_database)
    with pytest.raises(SchemaMissing, match="run `smena db migrate`"):
        store.pay.enqueue(1)
    with pytest.raises(SchemaMissing, match="run `smena db migrate`"):
        asyncio.run(store.pay.aenqueue(1))
    store.app.migrate()
    store.pay.enqueue(1)
    store.app.close()
    assert 1 == store.jobs


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4"])
def test_a_pool_size_is_a_number_of_connections(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="pool_size="):
        Smena("postgresql://", pool_size=size)


def test_a_serialization_failure_is_repeated(store: Store) -> None:
    """A role may have another default isolation."""
    name = store.value("select current_database()")
    store.run(f"alter database {name} set default_transaction_isolation = serializable")
    once = store.pay.using(unique_key="k")
    barrier = threading.Barrier(8)
    made = []

    def together() -> None:
        barrier.wait()
        made.append(once.enqueue(1))

    threads = [threading.Thread(target=together) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 8 == len(made)
    assert 1 == sum(job.created for job in made)
    assert 1 == len({job.id for job in made})


# Forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_neither_uses_nor_closes_its_parents_connections(store: Store) -> None:
    program = """
import asyncio, os, sys, threading
from smena import Smena
app = Smena(sys.argv[1])
@app.task(name="pay")
def pay(n: int) -> None: ...

def fork(work, leave=os._exit):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            leave(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def pid():
    with app.database.connection() as own:
        return own.info.backend_pid

pay.enqueue(1)
mine = pid()
def work():
    app.close()                      # closes nothing of the parent's
    pay.enqueue(2)
    assert pid() != mine
    asyncio.run(pay.aenqueue(3))
    app.close()
for _ in range(3):
    fork(work)
    pay.enqueue(4)
    assert pid() == mine

# A fork while another thread holds the lock of the pool's making.
with app.database._lock:
    fork(work)

async def main():
    await pay.aenqueue(5)
    fork(lambda: pay.enqueue(6))
    await pay.aenqueue(7)
    await app.aclose()
asyncio.run(main())
fork(lambda: None, leave=sys.exit)
pay.enqueue(8)
"""
    child = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program, store.dsn],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "" == child.stderr
    assert 0 == child.returncode
    assert 1 + 3 * 3 + 2 + 4 == store.jobs


@on_a_loop
async def test_a_cancelled_enqueue_leaves_the_pool_in_order(store: Store) -> None:
    await store.pay.aenqueue(0)
    with psycopg.connect(store.dsn) as blocker:
        blocker.execute("lock table smena.job")
        waiting = [asyncio.create_task(store.pay.aenqueue(1)) for _ in range(6)]
        await asyncio.sleep(0.2)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        blocker.rollback()
    await asyncio.gather(*[store.pay.aenqueue(2) for _ in range(6)])
    assert 7 == store.jobs
    await store.app.aclose()
