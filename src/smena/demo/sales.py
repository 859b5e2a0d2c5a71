"""The shop's purchases and the jobs that charge them, as they are in the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from psycopg import sql

from smena.demo.place import SHOP, Place
from smena.demo.purchases import Purchase
from smena.tasks import Task

BATCH = 500

_INSERT = "insert into {}.purchases (number, customer, day, quantity, amount, job) values (%s, %s, %s, %s, %s, %s)"
_READ = """select p.number, p.amount, j.state, j.failure_kind
from {shop}.purchases p left join {store}.jobs j on j.id = p.job"""
_TOTALS = """select
  (select count(*) from {store}.jobs),
  (select coalesce(sum(attempts_total), 0) from {store}.jobs),
  (select count(*) from {store}.attempts where outcome = 'crashed')"""


@dataclass(frozen=True, slots=True)
class Sale:
    """A purchase in the table, and how its job ended; `state` is None when there is no job."""

    number: int
    amount: Decimal
    state: str | None
    failure_kind: str | None


@dataclass(frozen=True, slots=True)
class JobTotals:
    """All jobs of the store. `suspects`: jobs that a dead worker left behind, each of which was then run alone."""

    jobs: int
    attempts: int
    suspects: int


def sell(place: Place, purchases: Iterable[Purchase], charge: Task[[int, Decimal], Any]) -> None:
    """Stores each purchase and the job that charges it in one transaction, so that neither is there without the other.

    500 purchases a transaction, because there are many of them at once here; a web shop would have one.
    """
    insert = sql.SQL(_INSERT).format(sql.Identifier(SHOP))
    for some in _batches(purchases):
        with place.connection.transaction(), place.connection.cursor() as cursor:
            jobs = charge.enqueue_many([(p.number, p.amount) for p in some], conn=place.connection)
            rows = [
                (p.number, p.customer, p.date, p.quantity, p.amount, job.id) for p, job in zip(some, jobs, strict=True)
            ]
            cursor.executemany(insert, rows)


def read_sales(place: Place) -> list[Sale]:
    """Every purchase that the shop has."""
    return [Sale(*row) for row in place.connection.execute(_in(place, _READ))]


def read_totals(place: Place) -> JobTotals:
    """Counted over the store's jobs and their attempts."""
    row = place.connection.execute(_in(place, _TOTALS)).fetchone()
    assert row is not None
    return JobTotals(*map(int, row))


def _in(place: Place, query: Any) -> sql.Composed:
    return sql.SQL(query).format(store=sql.Identifier(place.store), shop=sql.Identifier(SHOP))


def _batches(purchases: Iterable[Purchase]) -> Iterator[list[Purchase]]:
    rest = iter(purchases)
    while some := list(islice(rest, BATCH)):
        yield some
