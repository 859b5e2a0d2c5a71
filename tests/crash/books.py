"""The books: what the store says of its jobs and what their handlers left must tell the same story."""

from __future__ import annotations

from crash.fix_workers import Shop

# Attempt rows that cost an attempt. A crash in company at the last attempt gives it back, which the check allows for.
_COSTLY = "('retried', 'crashed')"


def books_balance(shop: Shop, jobs: int) -> None:
    """Nothing is lost, nothing is left under way, and each start is accounted for, once."""
    states = shop.states()
    assert jobs == sum(states.values())
    assert {} == {state: n for state, n in states.items() if state in ("ready", "running", "scheduled", "blocked")}
    assert [] == shop.query("select id, count(*) from smena.jobs group by 1 having count(*) > 1")
    # The token of a done job is that of the attempt whose result was kept, and no later one began.
    assert [] == shop.query(
        "select j.id, j.result, max(e.token) from smena.jobs j join effects e on e.job = j.id"
        " where j.state = 'done' group by 1, 2 having j.result::text::bigint <> max(e.token)"
    )
    # Each start ended in exactly one outcome: done, or a row of history.
    assert [] == shop.query(
        "select e.job, e.token, e.attempt, h.outcomes, j.state from effects e join smena.job j on j.id = e.job"
        " left join (select job_id, pos, array_agg(outcome) as outcomes from smena.attempts group by 1, 2) h"
        " on h.job_id = e.job and h.pos = e.token"
        " where (j.state = 'd' and j.pos = e.token)::int + coalesce(cardinality(h.outcomes), 0) <> 1"
    )
    # Only retries and crashes cost an attempt.
    assert [] == shop.query(
        "select j.id, j.attempt, count(a) from smena.jobs j"
        f" left join smena.attempts a on a.job_id = j.id and a.outcome in {_COSTLY}"
        " where j.state = 'done' group by 1, 2, j.max_attempts"
        " having j.attempt > 1 + count(a) or (j.attempt < 1 + count(a) and j.attempt < j.max_attempts)"
    )
    assert 0 == shop.value(
        "select count(*) from smena.claims c where not exists (select from smena.workers w"
        " where w.incarnation = c.incarnation)"
    )


def order_kept(shop: Shop) -> None:
    """Within a key, no attempt of a later job began before the last attempt of the earlier one had ended."""
    assert [] == shop.query(
        "select a.order_key, a.id, b.id from smena.jobs a"
        " join smena.jobs b on a.order_key = b.order_key and a.id < b.id"
        " join effects ea on ea.job = a.id join effects eb on eb.job = b.id"
        " where a.state = 'done' and eb.began < (select max(e.ended) from effects e where e.job = a.id)"
    )


def started_once(shop: Shop, where: str = "true") -> None:
    """No job (of those that `where` names) began a second time."""
    assert [] == shop.query(
        "select j.id, j.state, array_agg((e.token, e.attempt, e.pid) order by e.token),"
        " (select array_agg((a.pos, a.outcome) order by a.finished_at) from smena.attempts a where a.job_id = j.id)"
        f" from smena.jobs j join effects e on e.job = j.id where {where} group by 1, 2 having count(*) > 1"
    )
