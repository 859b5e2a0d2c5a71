"""Lists are read by index: no plan reads a segment from end to end, however the statistics stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from smena._migrations import migrate
from smena._ops import listing
from smena._ops.listing import Filter
from smena._sql import statement
from smena.jobs import JobState
from smena.testing.databases import empty

FINISHED = 100_000

LISTS = {
    "all": Filter(),
    "failed": Filter((JobState.FAILED,)),
    "ready": Filter((JobState.READY,)),
    "running": Filter((JobState.RUNNING,)),
    "done": Filter((JobState.DONE,)),
    "open": Filter((JobState.SCHEDULED, JobState.BLOCKED, JobState.READY, JobState.RUNNING)),
    "rare task": Filter(tasks=("shop.rare",)),
    "queue": Filter(queues=("mail",)),
    "failed kind": Filter((JobState.FAILED,), ("payments",), ("shop.charge",), ("ERROR",)),
}


@pytest.fixture(scope="module")
def history(server_dsn: str) -> Iterator[str]:
    """A store in which 100,000 jobs are done, 2,000 failed and none is ready. Not analyzed."""
    with empty(server_dsn) as dsn:
        migrate(dsn)
        with psycopg.connect(dsn) as connection:
            connection.execute("select smena.lane('payments', 0), smena.lane('mail', 5)")
            fill = (
                "insert into smena.job"
                " (lane, queue, pos, id, state, task, args, max_attempts, finished_at, failure_kind)"
                " select l.id, l.queue, {}, g.id, '{}', 'shop.charge', '{{}}', 5, now(), {}"
                " from smena.lanes l join smena.queues q on q.id = l.queue,"
                " (select nextval('smena.pos_seq') as id from generate_series(1, {})) g"
                " where q.name = 'payments' and l.kind = 'n'"
            )
            connection.execute(fill.format("g.id", "d", "null", FINISHED))
            connection.execute(fill.format("-g.id", "f", "'ERROR'", 2_000))
            # As the floor duty leaves it when all is done.
            connection.execute("insert into smena.floors (lane, floor) select id, %s from smena.lanes", [FINISHED])
        yield dsn


@pytest.mark.parametrize("analyzed", [False, True], ids=["without statistics", "with statistics"])
@pytest.mark.parametrize("name", LISTS)
def test_no_list_scans_a_segment(name: str, analyzed: bool, history: str) -> None:
    with psycopg.connect(history, autocommit=True) as connection:
        if analyzed:
            connection.execute("analyze")
        plans = _plans(connection, LISTS[name])
    assert plans
    for query, plan in plans:
        assert [] == re.findall(r"(?:Seq Scan|Bitmap Heap Scan) on job_\w+", plan), f"{query}:\n{plan}"


@pytest.mark.parametrize("name", LISTS)
def test_a_page_is_there_at_once_and_touches_few_pages(name: str, history: str) -> None:
    # What a list reads is bounded by its limit; only a filter without an index goes through history, window by window.
    most = 5_000 if name not in ("rare task", "queue", "done") else 40_000
    with psycopg.connect(history, autocommit=True) as connection:
        plans = _plans(connection, LISTS[name], "explain (analyze, buffers) ")
    touched = sum(
        int(hit) for _, plan in plans for hit in re.findall(r"^  Buffers: shared hit=(\d+)", plan, re.MULTILINE)
    )
    assert touched <= most


def _plans(connection: psycopg.Connection[Any], filter: Filter, explain: str = "explain ") -> list[tuple[str, str]]:
    """Runs the operation, and beside each of its statements its plan, in one transaction as the command does."""
    found = []
    operation = listing.page(filter, limit=100)
    with connection.transaction(), psycopg.RawCursor(connection) as cursor:
        query = next(operation)
        while True:
            text = statement(query.name)
            values = [query.parameters[name] for name in text.names]
            if text.names:
                cursor.execute(explain.encode() + text.numbered.encode(), values)
                found.append((query.name, "\n".join(row[0] for row in cursor.fetchall())))
            cursor.execute(text.numbered.encode(), values)
            try:
                query = operation.send(cursor.fetchall())
            except StopIteration:
                return found
