"""Signals: a worker leaves in order, whatever it is doing, and the shift goes on without it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from crash.books import books_balance, started_once
from crash.fix_proxy import Proxy
from crash.fix_server import PrivateServer
from crash.fix_workers import LEASE, Process, Shop

# The short form; the long one is `CHAOS_STOPS=1000`.
STOPS = int(os.environ.get("CHAOS_STOPS", "25"))


def test_workers_stopped_at_random_moments_leave_nothing_undone_and_nothing_done_twice(shop: Shop) -> None:
    """G57: a stop in the middle of a claim or a finish. Each worker leaves with 0 and nothing on it."""
    import shop as module

    random.seed(STOPS)
    jobs = 0
    workers = [shop.worker("--concurrency", "5") for _ in range(3)]
    for n in range(STOPS):
        jobs += len(module.note.enqueue_many([()] * 300))
        jobs += len(module.note.enqueue_many([(True,)] * 30))
        jobs += len(module.note.using(order_key=f"key-{n % 5}").enqueue_many([()] * 20))
        leaving = workers.pop(0)
        shop.until(lambda leaving=leaving: "worker.started" in leaving.text())
        time.sleep(random.uniform(0, 0.1))  # a random moment of its work
        leaving.signal(random.choice([signal.SIGTERM, signal.SIGINT]))
        workers.append(shop.worker("--concurrency", "5"))
        assert 0 == leaving.exit_code(), leaving.text()
        assert 0 == shop.value("select count(*) from smena.workers where pid = %s", leaving.child.pid)
    shop.until_ended(120)
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert 0 == worker.exit_code()
    began = shop.read_notes()
    assert {"done": jobs} == shop.states()
    books_balance(shop, jobs)
    # Failing once is what starts a job again, and nothing else does.
    assert jobs + STOPS * 30 == began
    assert [("retried", STOPS * 30)] == shop.query(
        "select outcome, count(*) from smena.attempts where outcome <> 'handed_back' group by 1"
    )
    assert [(0, 0)] == shop.query("select (select count(*) from smena.workers), (select count(*) from smena.claims)")


def test_a_stop_waits_for_a_finish_that_is_on_its_way(shop: Shop) -> None:
    """The work is done: taking it back now would do it twice."""
    import shop as module

    job = module.long_at_first.enqueue(1.0).id
    worker = shop.worker()
    shop.until(lambda: shop.value("select count(*) from effects"), what="the job began")
    with psycopg.connect(shop.dsn) as somebody:
        somebody.execute("select from smena.job where id = %s for update", [job])
        _until_a_statement_waits(shop)
        worker.signal(signal.SIGTERM)
        shop.until(lambda: shop.value("select stopping from smena.workers"), what="it drains")
    assert 0 == worker.exit_code()
    assert {"done": 1} == shop.states()
    started_once(shop)
    assert 0 == shop.value("select count(*) from smena.attempts")


def test_a_lease_lives_until_the_last_finish_under_it_has_come_through(shop: Shop) -> None:
    """An incarnation that is retired while a finish of it is on its way keeps its lease until that is through."""
    import shop as module

    job = module.long_at_first.enqueue(1.0).id
    shop.worker()
    shop.until(lambda: shop.value("select count(*) from effects"), what="the job began")
    first = shop.value("select incarnation from smena.workers")
    with psycopg.connect(shop.dsn) as somebody:
        somebody.execute("select from smena.job where id = %s for update", [job])
        _until_a_statement_waits(shop)
        shop.query(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and application_name = 'smena worker' and query ~ 'wait_change|json_build_object'"
        )
        shop.until(lambda: shop.value("select count(*) from smena.workers where not closed") == 1)
        shop.until(lambda: shop.value("select closed from smena.workers where incarnation = %s", first), what="retired")
        shop.until(lambda: shop.value("select is_witness from smena.workers w, smena.is_witness(w) where not closed"))
        shop.until(lambda: shop.value("select claimed_until > clock_timestamp() from smena.workers where closed"))
    shop.until_ended()
    assert {"done": 1} == shop.states()
    started_once(shop)
    shop.until_there(1)


def _until_a_statement_waits(shop: Shop) -> None:
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    shop.until(lambda: shop.value(waiting), what="the finish is on its way")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_hands_back_what_it_did_not_start(shop: Shop, number: int) -> None:
    """G60: the drain finishes what runs and gives the rest back, without spending an attempt."""
    import shop as module

    module.work.enqueue_many([(1.0,)] * 12)
    worker = shop.worker("--concurrency", "2")
    shop.until(lambda: shop.value("select count(*) from effects") >= 2)
    worker.signal(number)
    assert 0 == worker.exit_code()
    began = shop.value("select count(*) from effects")
    assert {"done": began, "ready": 12 - began} == shop.states()
    assert 0 == shop.value("select max(attempt) from smena.jobs where state = 'ready'")
    assert [(0, 0)] == shop.query("select (select count(*) from smena.workers), (select count(*) from smena.claims)")


def test_a_second_signal_hands_running_work_back_without_spending_an_attempt(shop: Shop) -> None:
    import shop as module

    job = module.work.enqueue(60).id
    worker = shop.worker()
    shop.until(lambda: shop.value("select count(*) from effects"))
    worker.signal(signal.SIGTERM)
    shop.until(lambda: shop.value("select stopping from smena.workers"), what="it drains")
    worker.signal(signal.SIGTERM)
    assert 0 == worker.exit_code()
    assert [("ready", 0)] == shop.query("select state, attempt from smena.jobs where id = %s", job)


def test_a_third_signal_leaves_at_once_and_the_reapers_do_the_rest(shop: Shop) -> None:
    import shop as module

    job = module.stubborn.enqueue().id
    worker = shop.worker("--concurrency", "1")
    shop.until(lambda: shop.value("select count(*) from effects"))
    for _ in range(3):
        worker.signal(signal.SIGTERM)
        shop.until(lambda: _has_taken(worker, signal.SIGTERM), what="the signal was taken")
    assert 1 == worker.exit_code(5)
    assert "running" == shop.value("select state from smena.jobs where id = %s", job)
    shop.worker()
    shop.until_ended(LEASE * 4 + 20)
    assert [("done", 2)] == shop.query("select state, attempt from smena.jobs where id = %s", job)


def test_a_handler_that_does_not_let_go_cannot_keep_the_process(shop: Shop) -> None:
    """It swallows its cancellation. After the second signal the process leaves without it, and says so."""
    import shop as module

    job = module.stubborn.enqueue().id
    worker = shop.worker("--grace", "0.5")
    shop.until(lambda: shop.value("select count(*) from effects"))
    worker.signal(signal.SIGTERM)
    assert 1 == worker.exit_code(25)
    assert "did not end" in worker.text()
    assert [("ready", 0)] == shop.query("select state, attempt from smena.jobs where id = %s", job)


def _has_taken(worker: Process, number: int) -> bool:
    """Whether a signal that was sent is not pending any more: two of a kind would become one."""
    try:
        with open(f"/proc/{worker.child.pid}/status") as status:
            pending = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    except FileNotFoundError:
        return True
    return not any(mask >> (number - 1) & 1 for mask in pending)


@pytest.fixture
def proxy(private_server: PrivateServer) -> Iterator[Proxy]:
    """A link to the server that can break."""
    proxy = Proxy(("127.0.0.1", private_server.port))
    yield proxy
    proxy.close()


@pytest.mark.parametrize(("how", "busy"), [("cut", False), ("cut", True), ("stalled", True)])
def test_a_worker_that_is_stopped_while_its_link_is_broken_leaves_in_time(
    away_shop: Shop, proxy: Proxy, how: str, busy: bool
) -> None:
    """It cannot hand anything in or back. It leaves all the same, and its peers take over when its lease is over."""
    import shop as module

    shop = away_shop
    worker = shop.worker("--grace", "1", dsn=make_conninfo(shop.dsn, port=proxy.port))
    shop.until_there(1)
    jobs = 4 if busy else 0
    module.long_at_first.enqueue_many([(60,)] * jobs)
    shop.until(lambda: shop.value("select count(*) from effects") == jobs)
    proxy.cut() if how == "cut" else proxy.stall()
    worker.signal(signal.SIGTERM)
    assert 0 == worker.exit_code(25)
    shop.worker()
    shop.until_ended(60)
    books_balance(shop, jobs)
    shop.until_there(1)
