"""What a chaos run came to: a table for people, and a list of what may not be."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crash.books import books_balance
from crash.feeder import Feeder
from crash.fix_workers import Shop

# With an order key no attempt begins before each earlier job of the key has its outcome.
_OVERTAKEN = """
    select key, id from (
      select j.order_key as key, j.id,
        max(j.finished_at) over (
          partition by j.order_key order by j.id rows between unbounded preceding and 1 preceding) as before,
        (select min(e.began) from effects e where e.job = j.id) as began
      from smena.jobs j where j.order_key is not null) o
    where began < before"""
# With an active unique key the next one is stored when the one before has its outcome.
_TWO_ACTIVE = """
    select key, id from (
      select j.unique_key as key, j.id, j.created_at,
        max(j.finished_at) over (
          partition by j.unique_key order by j.id rows between unbounded preceding and 1 preceding) as before
      from smena.jobs j where j.unique_key is not null) u
    where created_at < before"""
_FAILURES = """
    select state || ' ' || failure_kind, count(*) from smena.jobs
    where state in ('failed', 'unknown') group by 1 order by 1"""
_OUTCOMES = "select outcome, count(*) from smena.attempts group by 1 order by 1"
_TWICE = "select count(*) from (select from effects where ended is not null group by job having count(*) > 1) x"
# A start that ended without the handler's own word, and did not end the job.
_REPEATED = """
    select j.id, e.token, a.outcome from smena.jobs j join effects e on e.job = j.id
    join smena.attempts a on a.job_id = j.id and a.pos = e.token
    where j.task = 'shop.must_not_repeat' and a.outcome not in ('retried', 'failed', 'unknown')"""


class Tally:
    """Counted once, when everything has ended."""

    def __init__(self, shop: Shop, feeder: Feeder, done: Counter[str], seconds: float) -> None:
        self._shop = shop
        self._feeder = feeder
        self._done = done
        self._seconds = seconds
        self._states = shop.states()
        self._stored = {row[0] for row in shop.query("select id from smena.jobs")}
        self._lost = feeder.accepted - self._stored
        self._overtaken = shop.query(_OVERTAKEN)
        self._two_active = shop.query(_TWO_ACTIVE)
        self._repeated = shop.query(_REPEATED)

    def table(self) -> str:
        """Two columns: what, and how many."""
        shop, feeder = self._shop, self._feeder
        rows: list[tuple[str, Any]] = [
            ("seconds", round(self._seconds)),
            ("", ""),
            ("jobs", len(self._stored)),
            *((f"  {kind}", count) for kind, count in sorted(feeder.kinds.items())),
            *((state, self._states.get(state, 0)) for state in ("done", "failed", "unknown", "cancelled")),
            *((f"  {kind}", count) for kind, count in shop.query(_FAILURES)),
            ("attempts begun", shop.value("select count(*) from effects")),
            *((f"  ended as {outcome}", count) for outcome, count in shop.query(_OUTCOMES)),
            ("jobs that ran to their end twice", shop.value(_TWICE)),
            ("", ""),
            *sorted(self._done.items()),
            ("leases lost", self._logged("worker.lost_lease")),
            ("lost tokens counted", self._logged("job.lost_token")),
            ("duplicates refused", feeder.refused),
            ("enqueues without an answer", feeder.unknown),
            ("", ""),
            ("order violations", len(self._overtaken)),
            ("unique violations", len(self._two_active)),
            ("repeated against their will", len(self._repeated)),
            ("lost", len(self._lost)),
        ]
        return "\n".join(f"{what:<36}{count:>10}" for what, count in rows)

    def wrong(self) -> list[str]:
        """What may not be."""
        found = []
        if self._lost:
            found.append(f"jobs are lost: {sorted(self._lost)[:20]}")
        if self._overtaken:
            found.append(f"jobs overtook others of their key: {self._overtaken[:20]}")
        if self._two_active:
            found.append(f"two jobs of one unique key: {self._two_active[:20]}")
        if self._repeated:
            found.append(f"repeated against their will: {self._repeated[:20]}")
        poison = "select id, state, failure_kind from smena.jobs where task = 'shop.kills_its_worker'"
        if odd := [row for row in self._shop.query(poison) if row[1:] != ("failed", "CRASHED")]:
            found.append(f"poison that was not quarantined: {odd}")
        try:
            books_balance(self._shop, len(self._stored))
        except AssertionError as error:
            found.append(f"the books: {str(error)[:2000] or error!r}")
        for table in ("workers", "claims"):
            if left := self._shop.value(f"select count(*) from smena.{table}"):
                found.append(f"{left} rows are left in smena.{table}")
        return found

    def _logged(self, event: str) -> int:
        return sum(process.text().count(event) for process in self._shop.processes)
