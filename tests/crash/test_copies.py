"""Copies of the database: dumps, clones, promoted standbys, and a sequence that was left behind.

A copy may hold jobs that are running elsewhere, so nobody works on it unasked. Once it is adopted, or has taken over,
everything in it ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from crash.books import books_balance
from crash.fix_server import PrivateServer
from crash.fix_workers import Shop, fill, open_shop


def _all_states(shop: Shop) -> int:
    """Jobs in every state, some of them running in a worker that lives; returns how many."""
    import shop as module

    jobs = len(module.work.enqueue_many([(0.0,)] * 5)) + len(module.fails_first.enqueue_many([(0.0,)] * 5))
    for task in (module.refuses, module.unsure, module.gives_up):
        task.enqueue()
    shop.worker("--concurrency", "4")
    shop.until_ended()
    jobs += 3 + len(module.long_at_first.enqueue_many([(300,)] * 3))
    jobs += len(module.long_at_first.using(order_key="key").enqueue_many([(300,)]))
    jobs += len(module.ordered.enqueue_many([("key", 0.0)] * 2))
    running = "select count(*) from effects where ended is null and attempt = 1"
    shop.until(lambda: shop.value(running) == 4, what="all slots are taken")
    jobs += len(module.work.enqueue_many([(0.0,)] * 30))
    jobs += len(module.work.using(run_in=3600).enqueue_many([(0.0,)] * 5))
    states = {"scheduled", "blocked", "ready", "running", "done", "failed", "unknown", "cancelled"}
    assert states == set(shop.states())
    return jobs


def _dump_and_restore(server: PrivateServer, shop: Shop, name: str) -> None:
    server.run("pg_dump", "-Fc", "-f", "dump", shop.dsn)
    server.run("createdb", "-h", "127.0.0.1", "-p", str(server.port), "-U", "smena", name)
    server.run("pg_restore", "--no-owner", "-d", server.dsn(name), "dump")


def _clone(server: PrivateServer, shop: Shop, name: str) -> None:
    import shop as module

    module.app.close()
    for process in shop.processes:
        process.kill()
    source = shop.value("select current_database()")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", [source])
        connection.execute(f"create database {name} template {source}")


@pytest.mark.parametrize("copied", [_dump_and_restore, _clone])
def test_a_copy_is_refused_until_adopted_and_then_everything_in_it_ends(
    private_server: PrivateServer, away_shop: Shop, copied: Callable[[PrivateServer, Shop, str], None]
) -> None:
    jobs = _all_states(away_shop)
    name = f"{away_shop.value('select current_database()')}_copy"
    copied(private_server, away_shop, name)
    copy = Shop(private_server.dsn(name), away_shop.folder)
    try:
        before = copy.states()
        assert jobs == sum(before.values())
        assert 4 == copy.worker().exit_code()
        assert "smena db adopt" in copy.processes[0].text()
        assert 2 == copy.smena("db", "adopt")  # without --yes nothing happens
        assert 4 == copy.worker().exit_code()
        assert before == copy.states()
        assert 0 == copy.smena("db", "adopt", "--yes")
        for _ in range(2):
            copy.worker("--concurrency", "4")
        copy.query("update smena.jobs set run_at = clock_timestamp() where state = 'scheduled'")
        copy.until_ended()
        assert {"done": jobs - 3, "failed": 1, "unknown": 1, "cancelled": 1} == copy.states()
        books_balance(copy, jobs)
        assert copy.value("select last_value >= (select max(pos) from smena.job) from smena.pos_seq")
        copy.until_there(2)  # those that were working in the original are forgotten
    finally:
        copy.close()


def test_a_living_worker_leaves_when_a_copy_takes_the_place_of_its_database(
    private_server: PrivateServer, away_shop: Shop
) -> None:
    """A restore under the old name: who reconnects to it is asked as if it had just started."""
    import shop as module

    shop = away_shop
    worker = shop.worker()
    shop.until_there(1)
    module.work.using(run_in=3600).enqueue(0.0)
    module.app.close()
    name = shop.value("select current_database()")
    _dump_and_restore(private_server, shop, f"{name}_copy")
    with psycopg.connect(private_server.dsn(), autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false")
        connection.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", [name])
        connection.execute(f"alter database {name} rename to {name}_old")
        connection.execute(f"alter database {name}_copy rename to {name}")
    assert 4 == worker.exit_code()
    assert "smena db adopt" in worker.text()
    assert {"scheduled": 1} == shop.states()


def test_a_sequence_that_was_left_behind_is_moved_before_a_position_is_drawn_twice(shop: Shop) -> None:
    """As after a logical switchover, or a restore that forgot sequences: found at the start of a worker."""
    import shop as module

    jobs = len(module.fails_first.enqueue_many([(0.0,)] * 20))
    worker = shop.worker()
    shop.until_ended()
    worker.signal(signal.SIGTERM)
    assert 0 == worker.exit_code()
    jobs += len(module.work.enqueue_many([(0.0,)] * 20))
    shop.query("select setval('smena.pos_seq', 1)")
    worker = shop.worker()
    shop.until(lambda: "position_rewound" in worker.text())
    jobs += len(module.work.enqueue_many([(0.0,)] * 20)) + len(module.fails_first.enqueue_many([(0.0,)] * 20))
    shop.until_ended()
    assert {"done": jobs} == shop.states()
    books_balance(shop, jobs)


def test_a_sequence_that_goes_back_under_a_working_worker_is_moved_by_the_floor_pass(shop: Shop) -> None:
    """Until then whoever draws a position twice meets an error and comes again; the worker does not die of it."""
    import shop as module

    jobs = len(module.work.enqueue_many([(0.0,)] * 20))
    worker = shop.worker()
    shop.until_ended()
    shop.query("select setval('smena.pos_seq', 1)")
    shop.until(lambda: "position_rewound" in worker.text())
    jobs += len(module.work.enqueue_many([(0.0,)] * 20)) + len(module.fails_first.enqueue_many([(0.0,)] * 20))
    shop.until_ended()
    assert {"done": jobs} == shop.states()
    books_balance(shop, jobs)
    assert [None] == shop.exits()


@pytest.fixture
def primary(server_programs: Path | None) -> Iterator[PrivateServer]:
    server = PrivateServer(server_programs)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.end()


def test_living_workers_finish_on_a_promoted_standby_all_that_it_has(
    primary: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asynchronous standby has not seen the last commits. Finishes, claims and leases that the workers remember are
    not in it; the workers go by what it has, and nothing is left running under their names.
    """
    primary_dsn = primary.database("shop")
    standby = primary.standby()
    ports = f"{primary.port},{standby.port}"
    both = make_conninfo(primary_dsn, host="127.0.0.1,127.0.0.1", port=ports, target_session_attrs="read-write")
    try:
        with open_shop(both, tmp_path, monkeypatch) as shop:
            import shop as module

            jobs = fill(module, 150)
            for _ in range(3):
                shop.worker("--concurrency", "5")
            shop.until_there(3)
            shop.until_begun(30)
            standby.stop_receiving()
            shop.until_begun(60)
            done = shop.states()["done"]
            primary.crash(signal.SIGKILL)
            standby.promote()
            assert done > shop.states().get("done", 0), "the standby has not seen all of it"
            shop.until_ended(90)
            assert jobs == sum(shop.states().values())
            assert {"done": jobs} == shop.states()
            assert [] == shop.query("select id, count(*) from smena.jobs group by 1 having count(*) > 1")
            assert [None] * 3 == shop.exits()
            assert shop.value("select last_value >= (select max(pos) from smena.job) from smena.pos_seq")
            shop.until_there(3)
    finally:
        standby.end()
