"""The database goes away and comes back: nothing is lost, and nothing that lives is started twice."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from crash.books import books_balance, order_kept, started_once
from crash.fix_proxy import Proxy
from crash.fix_server import PrivateServer
from crash.fix_workers import LEASE, Shop, fill
from smena._drivers.psycopg import aexecute
from smena._ops.operation import Query
from smena._ops.workers import lock_key
from smena._worker.incarnation import new_incarnation, register

OURS = "application_name in ('smena worker', 'smena lease') and datname = current_database()"


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL])
def test_a_server_that_crashes_twice_under_load_loses_nothing(
    private_server: PrivateServer, away_shop: Shop, number: int
) -> None:
    import shop as module

    shop = away_shop
    jobs = fill(module, 120)
    for _ in range(3):
        shop.worker("--concurrency", "5")
    shop.until_there(3)
    for _ in range(2):
        shop.until_begun(30)
        private_server.crash(number)
        private_server.start()
    shop.until_ended(90)
    books_balance(shop, jobs)
    order_kept(shop)
    assert {"done": jobs} == shop.states()
    assert [None] * 3 == shop.exits()


def test_an_outage_longer_than_the_lease_starts_nothing_twice_but_the_work_of_the_dead(
    private_server: PrivateServer, away_shop: Shop
) -> None:
    """B18: the living keep their leases, however long the outage; a worker that died in it is reaped afterwards."""
    import shop as module

    shop = away_shop
    module.held.enqueue_many([()] * 20)
    for _ in range(4):
        shop.worker("--concurrency", "5")
    shop.until(lambda: shop.value("select count(*) from effects") == 20)
    shop.until_working(4)
    dead = shop.processes[0]
    private_server.crash()
    dead.kill()
    time.sleep(LEASE * 2.5)  # the length of the outage is what is tested
    private_server.start()
    crashed = "select count(*) from smena.attempts where outcome = 'crashed'"
    shop.until(lambda: shop.value(crashed) == 5, what="the dead worker is reaped")
    shop.until_working(3)
    shop.let_go()
    shop.until_ended(60)
    assert {"done": 20} == shop.states()
    theirs = f"exists (select from effects d where d.job = j.id and d.pid = {dead.child.pid})"
    started_once(shop, f"not {theirs}")
    assert [(5, 10)] == shop.query(
        f"select count(distinct j.id), count(*) from smena.jobs j join effects e on e.job = j.id where {theirs}"
    )
    assert [None] * 3 == shop.exits()[1:]
    books_balance(shop, 20)


def test_a_server_that_stands_still_for_almost_a_lease_makes_no_worker_look_dead(
    private_server: PrivateServer, away_shop: Shop
) -> None:
    """Not even where one worker had just renewed and another was about to: the one is no witness against the other."""
    import shop as module

    shop = away_shop
    module.held.enqueue_many([()] * 12)
    for _ in range(4):
        shop.worker("--concurrency", "3")
    shop.until(lambda: shop.value("select count(*) from effects") == 12)
    shop.until_working(4)
    for _ in range(2):
        frozen = private_server.freeze()
        time.sleep(LEASE * 0.93)  # the length of the outage is what is tested
        private_server.thaw(frozen)
        shop.until_working(4)
    shop.let_go()
    shop.until_ended(60)
    assert {"done": 12} == shop.states()
    started_once(shop)


def test_leases_that_expired_before_a_restart_in_the_middle_of_reaping_leave_nothing_stranded(
    private_server: PrivateServer, away_shop: Shop
) -> None:
    """B08, with 60 dead workers."""
    import shop as module

    shop = away_shop
    dead = 60
    module.work.enqueue_many([(0.0,)] * dead * 2)
    asyncio.run(_claim_and_die(shop.dsn, dead))
    assert {"running": dead * 2} == shop.states()
    shop.worker("--concurrency", "5")
    crashed = "select count(*) from smena.attempts where outcome = 'crashed'"
    shop.until(lambda: shop.value(crashed) > 0, what="the reaping has begun")
    private_server.crash()
    private_server.start()
    assert 0 < shop.value(crashed) < dead * 2
    shop.until_ended(120)
    books_balance(shop, dead * 2)
    assert {"done": dead * 2} == shop.states()
    shop.until_there(1)  # the dead are forgotten


async def _claim_and_die(dsn: str, workers: int) -> None:
    """So many workers claim two jobs each and are never heard of again."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        lanes = await aexecute(connection, Query("jobs/peek", {"lanes": list(range(9)), "floors": [0] * 9}), "smena")
        nothing_done = {"done_lane": 0, "lo": 1, "hi": 0, "map": b"", "results": None}
        who = {"queues": None, "concurrency": 2, "lease": LEASE, "release": None}
        for n in range(workers):
            incarnation = new_incarnation()
            await register(connection, "smena", incarnation=incarnation, name=f"dead-{n}", **who)
            what = {"incarnation": incarnation, "lane": lanes[0][0], "floor": 0, "n": 2, **lock_key(incarnation)}
            assert 2 == len(await aexecute(connection, Query("jobs/claim", {**nothing_done, **what}), "smena"))


@pytest.mark.parametrize("which", ["one", "all"])
def test_terminated_connections_lose_nothing_and_start_nothing_twice(shop: Shop, which: str) -> None:
    """Claims become unknown: the incarnation is retired, what it holds unknowingly goes back, and nobody dies."""
    import shop as module

    random.seed(which)
    jobs = len(module.work.enqueue_many([(0.01,)] * 500)) + len(
        module.ordered.enqueue_many([(f"key-{n % 5}", 0.0) for n in range(60)])
    )
    for _ in range(2):
        shop.worker("--concurrency", "5")
    shop.until_there(2)
    limit = " order by random() limit 1" if which == "one" else ""
    for _ in range(60 if which == "one" else 12):
        shop.until_begun(3)
        shop.query(f"select pg_terminate_backend(pid) from (select pid from pg_stat_activity where {OURS}{limit}) a")
        if not shop.value("select exists (select from smena.jobs where state = 'ready')"):
            break
    shop.until_ended(60)
    assert {"done": jobs} == shop.states()
    started_once(shop)
    books_balance(shop, jobs)
    order_kept(shop)
    assert [None] * 2 == shop.exits()
    shop.until_there(2)  # what was retired is forgotten


@pytest.fixture
def proxy(private_server: PrivateServer) -> Iterator[Proxy]:
    """A link to the server that can break."""
    proxy = Proxy(("127.0.0.1", private_server.port))
    yield proxy
    proxy.close()


@pytest.mark.parametrize("how", ["cut", "stalled", "stalled for good"])
def test_a_worker_behind_a_broken_link_is_taken_over_and_comes_back(away_shop: Shop, proxy: Proxy, how: str) -> None:
    """B05, B14, B15: a peer takes over after the lease, late results change nothing, and the worker goes on."""
    import shop as module

    shop = away_shop
    job = module.long_at_first.enqueue(LEASE * 3).id
    far = shop.worker("--concurrency", "1", dsn=make_conninfo(shop.dsn, port=proxy.port))
    shop.until(lambda: shop.value("select count(*) from effects"), what="the job began")
    near = shop.worker("--concurrency", "1")
    shop.until_working(2)
    if how == "cut":
        proxy.cut()
    else:
        proxy.stall()
    shop.until(lambda: shop.value("select count(*) from effects") == 2, LEASE * 4 + 5, "the peer took over")
    assert near.child.pid == shop.value("select pid from effects order by token desc limit 1")
    shop.until(lambda: shop.value("select count(*) from effects where pid = %s", far.child.pid) == 1)
    shop.until_ended(30)
    proxy.mend(forget=how == "stalled for good")
    shop.until(lambda: "job.lost_token" in far.text(), 60, "its late result was refused")
    finisher = "select j.state, e.pid from smena.jobs j join effects e on e.token = j.result::text::bigint"
    assert [("done", near.child.pid)] == shop.query(f"{finisher} where j.id = %s", job)
    near.kill()
    module.work.enqueue_many([(0.01,)] * 20)
    shop.until_ended(60)
    books_balance(shop, 21)
    assert [None] == shop.exits()[:1]
