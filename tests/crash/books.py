"""The books: what the store says of its jobs and what their handlers left must tell the same story."""

from __future__ import annotations

from crash.fix_workers import Shop

# Attempt rows that cost an attempt. A crash in company at the last attempt gives it back, which the check allows for.
_COSTLY = "('retried', 'crashed')"


def books_balance(shop: Shop, jobs: int) -> None:
    """Nothing is lost, nothing is left under way, and each start is accounted for, once."""
    states = shop.states()
    assert jobs == sum(states.values()), f"{jobs} jobs were stored, these are there: {states}"
    for state in ("ready", "running", "scheduled", "blocked"):
        assert state not in states, f"not everything has ended: {states}"
    _none(shop, "two jobs have one id", "select id, count(*) from smena.jobs group by 1 having count(*) > 1")
    _none(
        shop,
        "a job is done by another attempt than its last",
        "select j.id, j.result, max(e.token) from smena.jobs j join effects e on e.job = j.id"
        " where j.state = 'done' group by 1, 2 having j.result::text::bigint <> max(e.token)",
    )
    _none(
        shop,
        "a start has not exactly one outcome, done or a row of history",
        "select e.job, e.token, e.attempt, h.outcomes, j.state from effects e join smena.job j on j.id = e.job"
        " left join (select job_id, pos, array_agg(outcome) as outcomes from smena.attempts group by 1, 2) h"
        " on h.job_id = e.job and h.pos = e.token"
        " where (j.state = 'd' and j.pos = e.token)::int + coalesce(cardinality(h.outcomes), 0) <> 1",
    )
    _none(
        shop,
        "an attempt was spent by something other than a retry or a crash",
        "select j.id, j.attempt, count(a) from smena.jobs j"
        f" left join smena.attempts a on a.job_id = j.id and a.outcome in {_COSTLY}"
        " where j.state = 'done' group by 1, 2, j.max_attempts"
        " having j.attempt > 1 + count(a) or (j.attempt < 1 + count(a) and j.attempt < j.max_attempts)",
    )
    _none(
        shop,
        "a claim belongs to nobody",
        "select * from smena.claims c where not exists"
        " (select from smena.workers w where w.incarnation = c.incarnation)",
    )


def order_kept(shop: Shop) -> None:
    """Within a key, no attempt of a later job began before the last attempt of the earlier one had ended."""
    _none(
        shop,
        "a job overtook another of its key",
        "select a.order_key, a.id, b.id from smena.jobs a"
        " join smena.jobs b on a.order_key = b.order_key and a.id < b.id"
        " join effects ea on ea.job = a.id join effects eb on eb.job = b.id"
        " where a.state = 'done' and eb.began < (select max(e.ended) from effects e where e.job = a.id)",
    )


def started_once(shop: Shop, where: str = "true") -> None:
    """No job (of those that `where` names) began a second time."""
    _none(
        shop,
        "a job was started again",
        "select j.id, j.state, array_agg((e.token, e.attempt, e.pid) order by e.token),"
        " (select array_agg((a.pos, a.outcome, a.worker, a.finished_at::text) order by a.finished_at)"
        " from smena.attempts a where a.job_id = j.id)"
        f" from smena.jobs j join effects e on e.job = j.id where {where} group by 1, 2 having count(*) > 1",
    )


def _none(shop: Shop, what: str, query: str) -> None:
    found = shop.query(query)
    assert [] == found, f"{what}: {found[:20]}\n" + "\n".join(process.text()[-1500:] for process in shop.processes[-4:])
