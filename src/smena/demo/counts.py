"""How far the work is: the demo's jobs by state, counted in the view that people use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from smena.demo.place import Place

OPEN = ("scheduled", "blocked", "ready", "running")
ENDED = ("done", "failed", "unknown", "cancelled")

_COUNT = """select state, count(*),
  date_part('epoch', clock_timestamp() - min(run_at) filter (where state = 'ready'))
from {}.jobs group by state"""
_HELD = """select w.pid, count(*) from {store}.jobs j join {store}.workers w on w.name = j.worker
where j.state = 'running' group by w.pid"""


@dataclass(frozen=True, slots=True)
class Counts:
    """`oldest` is how long the oldest ready job has been waiting, in seconds."""

    states: Mapping[str, int]
    oldest: float

    @property
    def open(self) -> int:
        return sum(self.states.get(state, 0) for state in OPEN)

    @property
    def ended(self) -> int:
        return sum(self.states.get(state, 0) for state in ENDED)


def count_jobs(place: Place) -> Counts:
    """Counts all of them, which is fine for a demo. A service reads `smena.queue_stats`, whose cost stays the same."""
    rows = place.connection.execute(sql.SQL(_COUNT).format(sql.Identifier(place.store))).fetchall()
    return Counts({state: count for state, count, _ in rows}, max((age or 0.0 for *_, age in rows), default=0.0))


def held_jobs(place: Place) -> dict[int, int]:
    """How many jobs each worker process has in its hands, by its process id."""
    rows = place.connection.execute(sql.SQL(_HELD).format(store=sql.Identifier(place.store))).fetchall()
    return dict(rows)
