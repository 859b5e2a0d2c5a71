"""Workers that die, stop and come back. Each test uses real processes and real signals."""

from __future__ import annotations

import os
import random
import signal

from crash.books import books_balance, order_kept
from crash.fix_workers import LEASE, Shop, fill

# The short form; the long one is `CHAOS_KILLS=50`.
KILLS = int(os.environ.get("CHAOS_KILLS", "3"))


def test_killing_all_workers_again_and_again_loses_nothing_and_keeps_the_order(shop: Shop) -> None:
    import shop as module

    random.seed(KILLS)
    jobs = fill(module, 200)
    workers = [shop.worker("--concurrency", "5") for _ in range(3)]
    for _ in range(KILLS):
        shop.until_begun(random.randint(1, 40))
        for worker in workers:
            worker.kill()
        workers = [shop.worker("--concurrency", "5") for _ in range(3)]
    shop.until_ended(120)
    # A job killed three times while it ran alone is quarantined: an outcome too, but rare in the short form.
    assert (
        shop.states().get("done", 0) + shop.value("select count(*) from smena.jobs where failure_kind = 'CRASHED'")
        == jobs
    )
    books_balance(shop, jobs)
    order_kept(shop)


def test_a_killed_workers_job_runs_again_within_lease_and_reap_time(shop: Shop) -> None:
    """B01: kill during a job; another worker takes over, one terminal result."""
    import shop as module

    job = module.work.enqueue(30).id
    first = shop.worker("--concurrency", "1")
    shop.until(lambda: shop.value("select count(*) from effects"), what="the job began")
    shop.worker("--concurrency", "1")
    shop.until_there(2)
    # It reaps only what it can judge: it has itself renewed for a lease term.
    first.kill()
    shop.until(lambda: shop.value("select count(*) from effects where job = %s", job) == 2, LEASE * 4 + 5)


def test_maintenance_of_a_killed_worker_is_taken_over_without_help(shop: Shop) -> None:
    """B02: the duties of a dead worker go on elsewhere: due jobs are promoted, keys activated."""
    import shop as module

    first = shop.worker()
    shop.until(lambda: shop.value("select holder is not null from smena.duties"), what="a worker has the duties")
    second = shop.worker()
    shop.until_there(2)
    holder = shop.value("select w.pid from smena.duties d join smena.workers w on w.incarnation = d.holder")
    (first if first.child.pid == holder else second).kill()
    module.work.using(run_in=0.5).enqueue(0.01)
    module.ordered.enqueue("key", 0.01)
    shop.until_ended(30)
    assert {"done": 2} == shop.states()


def test_a_job_much_longer_than_the_lease_starts_once(shop: Shop) -> None:
    """B03, B39: a healthy worker keeps its lease for as long as the job takes, also while it drains."""
    import shop as module

    module.work.enqueue(LEASE * 4)
    worker = shop.worker()
    shop.worker()
    shop.until(lambda: shop.value("select count(*) from effects"))
    running = shop.value("select pid from effects")
    for process in shop.processes:
        if process.child.pid == running:
            worker = process
    worker.signal(signal.SIGTERM)
    assert 0 == worker.exit_code()
    assert [(1, 1)] == shop.query("select count(*), count(ended) from effects")
    assert {"done": 1} == shop.states()


def test_a_paused_workers_late_finish_changes_nothing_and_is_counted(shop: Shop) -> None:
    """B05, G25: SIGSTOP beyond the lease, a peer takes over, SIGCONT: only the peer's finish counts."""
    import shop as module

    job = module.work.enqueue(LEASE * 1.5).id
    paused = shop.worker("--concurrency", "1", "--log-level", "debug")
    shop.until(lambda: shop.value("select count(*) from effects"))
    peer = shop.worker("--concurrency", "1")
    shop.until_there(2)
    paused.signal(signal.SIGSTOP)
    shop.until(lambda: shop.value("select count(*) from effects") == 2, what="the peer began")
    paused.signal(signal.SIGCONT)
    shop.until_ended(30)
    assert [("done", peer.child.pid)] == shop.query(
        "select j.state, e.pid from smena.jobs j join effects e on e.token = j.result::text::bigint where j.id = %s",
        job,
    )
    shop.until(lambda: "job.lost_token" in paused.text(), what="the lost token is counted")
    # The process goes on as a new incarnation.
    module.work.enqueue_many([(0.01,)] * 20)
    peer.kill()
    shop.until_ended(30)


def test_a_job_that_kills_its_worker_is_quarantined_and_harms_no_other(shop: Shop) -> None:
    """B11: os._exit at each attempt: CRASHED after the third crash alone; the neighbours are done."""
    import shop as module

    module.work.enqueue_many([(0.05,)] * 20)
    poison = module.kills_its_worker.enqueue().id
    module.work.enqueue_many([(0.05,)] * 20)
    shop.worker("--concurrency", "4")

    def ended() -> bool:
        if all(process.child.poll() is not None for process in shop.processes):
            shop.worker("--concurrency", "4")
        return shop.value("select state from smena.jobs where id = %s", poison) == "failed"

    shop.until(ended, 120, "the poison is quarantined")
    if shop.processes[-1].child.poll() is not None:
        shop.worker("--concurrency", "4")
    shop.until_ended(60)
    assert [("CRASHED", 3)] == shop.query("select failure_kind, crashes from smena.jobs where id = %s", poison)
    assert {"done": 40, "failed": 1} == shop.states()
    assert 0 == shop.value("select coalesce(max(crashes), 0) from smena.jobs where id <> %s", poison)


def test_a_started_job_that_must_not_repeat_ends_in_unknown(shop: Shop) -> None:
    """Rule: after its start mark a crash leaves the outcome unknown; it is never started again."""
    import shop as module

    job = module.must_not_repeat.enqueue(30).id
    worker = shop.worker()
    shop.until(lambda: shop.value("select count(*) from effects"))
    worker.kill()
    shop.worker()
    shop.until(lambda: shop.value("select state from smena.jobs where id = %s", job) == "unknown", 30)
    assert 1 == shop.value("select count(*) from effects")
