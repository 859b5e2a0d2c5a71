"""Plans of the statements that run all the time: they touch what they need, however much is stored.

Workers prepare a statement once and keep its generic plan. So the plan is looked at as it is made on an empty store, on
a full one, and with statistics that are missing or wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from smena._sql import statement
from smena._worker.link import OPTIONS

CLAIM = {
    "done_lane": 0,
    "lo": 1,
    "hi": 0,
    "map": b"",
    "results": None,
    "incarnation": 5,
    "n": 10,
    "lock_a": 1,
    "lock_b": 2,
}
STATEMENTS: dict[str, dict[str, Any]] = {
    "jobs/claim": CLAIM | {"done_lane": 1, "lo": 1, "hi": 5, "map": b"\1\0\1\0\1", "lane": 1, "floor": 1_000_000},
    "jobs/peek": {"lanes": [1, 2, 3], "floors": [1_000_000] * 3},
    "jobs/settle": {
        "rows": '[{"lane": 1, "pos": 3, "to": "s", "delay": 1, "back": false, "head": false}]',
        "incarnation": 5,
        "worker_name": "w",
    },
    "jobs/finish_ordered": {"rows": '[{"lane": 1, "pos": 4, "result": null}]', "incarnation": 5},
    "jobs/mark_started": {"lane": 1, "pos": 6, "incarnation": 5},
    "jobs/recheck": {"lane": 1, "positions": [3, 4], "incarnation": 5},
    "workers/reap": {"dead": 5, "lanes": [1, 1], "los": [1, 10], "his": [5, 20], "worker_name": "w"},
    "workers/retire": {"incarnation": 5, "known": [1], "worker_name": "w"},
    "workers/forget_claims": {"dead": 5},
    "duties/promote": {"floor": "-infinity", "page": 10},
    "duties/activate": {"page": 10},
    "duties/next_due": {},
    "floor/walk": {"lanes": [1, 2, 3], "floors": [999_990] * 3, "settled": 1_000_020},
    "floor/missing": {"los": [999_990], "his": [1_000_020], "ready_too": False},
    "floor/lift": {"los": [999_990], "his": [999_995], "page": 10},
    "floor/ready_in": {"los": [999_990], "his": [999_995]},
    "floor/highest": {},
    "people/cancel": {"id": 1_000_001, "reason": None},
}


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True, options=OPTIONS) as connection:
        connection.execute("select smena.lane('q', 0), smena.supply_segments(31)")
        assert [(33,)] == connection.execute(
            "select count(*) from pg_inherits where inhparent = 'smena.job'::regclass"
        ).fetchall()
        yield connection


def prepare(connection: psycopg.Connection[Any]) -> None:
    connection.execute("deallocate all")
    for n, name in enumerate(STATEMENTS):
        connection.execute(f"prepare s{n} as {statement(name).numbered}".encode())


def explain(connection: psycopg.Connection[Any], name: str, options: str = "", **other: Any) -> dict[str, Any]:
    """The plan of a prepared statement, run and undone with `analyze` among the options."""
    with connection.transaction(force_rollback=True):
        row = connection.execute(f"explain (format json{options}) {call(name, **other)}".encode()).fetchone()
    assert row is not None
    return dict(row[0][0]["Plan"])


def call(name: str, **other: Any) -> str:
    values = STATEMENTS[name] | other
    given = ", ".join(_literal(values[each]) for each in statement(name).names)
    return f"execute s{list(STATEMENTS).index(name)}" + (f"({given})" if given else "")


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bytes():
            return f"'\\x{value.hex()}'"
        case list():
            return f"'{{{','.join(map(str, value))}}}'"
        case str():
            return f"'{value}'"
        case _:
            return str(value).lower()


def jobs_of(node: dict[str, Any]) -> list[str]:
    """The parts of the log that a node reads itself or through its inputs, subplans left out."""
    own = [node["Relation Name"]] if "Scan" in node["Node Type"] and "Relation Name" in node else []
    inputs = [child for child in node.get("Plans", ()) if child["Parent Relationship"] not in ("InitPlan", "SubPlan")]
    return [name for name in [*own, *(n for child in inputs for n in jobs_of(child))] if name.startswith("job")]


def troubles(node: dict[str, Any]) -> list[str]:
    """Whole parts of the log that a plan reads: by a sequential scan, or to join them by hash or merge."""
    kind = node["Node Type"]
    found = []
    if kind in ("Seq Scan", "Hash Join", "Merge Join") and jobs_of(node):
        found.append(f"{kind} of {jobs_of(node)[0]}")
    return found + [trouble for child in node.get("Plans", ()) for trouble in troubles(child)]


def fill(connection: psycopg.Connection[Any], finished: int) -> None:
    """So many finished jobs, ten ready ones behind them, some running, and some hundreds in every parked state."""
    row = "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args, worker, run_at, order_key)"
    more = "5, 'work', '{}', 5, now() - interval '1 h', case when o then 'k' || g % 500 end"
    for lane, states, o, numbers in [
        (1, "case when g between 3 and 20 then 'l' else 'd' end", "false", f"generate_series(1, {finished}) g"),
        (1, "'r'", "false", "generate_series(1000001, 1000010) g"),
        (1, "(array['s', 's', 'f', 'c'])[1 + abs(g) % 4]", "false", "generate_series(-1002000, -1001001) g"),
        (1, "'b'", "true", "generate_series(-1004000, -1003001) g"),
    ]:
        chosen = f'{lane}, 1, g, abs(g), ({states})::"char", {more}'
        connection.execute(f"{row} select {chosen} from {numbers}, (select {o} as o) o".encode())
    connection.execute("select setval('smena.pos_seq', 1010000)")
    connection.execute("insert into smena.claims values (5, 1, 3, 20)")
    connection.execute(
        "insert into smena.workers (incarnation, name, host, pid, queues, concurrency, lease, claimed_until)"
        " values (5, 'w', 'h', 1, '{}', 1, 30, now() + interval '1 h')"
    )


def test_claim_reads_no_more_of_its_lane_than_lies_beyond_the_floor(connection: psycopg.Connection[Any]) -> None:
    fill(connection, 20_000)
    prepare(connection)
    own = explain(connection, "jobs/claim", ", analyze, buffers")
    connection.execute("update smena.job set lane = 2 where state = 'r'")
    other = explain(connection, "jobs/claim", ", analyze, buffers", lane=2, floor=0)
    for plan in (own, other):
        assert 10 == plan["Actual Rows"]
        assert 400 > pages(plan)


def pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("finished", [0, 1_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_plan_reads_whole_segments(connection: psycopg.Connection[Any], finished: int) -> None:
    bad: dict[str, list[str]] = {}

    def look(when: str) -> None:
        prepare(connection)
        for name in STATEMENTS:
            if found := troubles(explain(connection, name)):
                bad[f"{name}, {when}"] = found[:2]

    if finished == 0:
        look("never analyzed")
        connection.execute("analyze")
        look("analyzed")
    else:
        fill(connection, finished)
        look("never analyzed")
        connection.execute("analyze")
        look("analyzed")
        connection.execute("delete from smena.job where pos < 0 or pos between 3 and 20")
        look("statistics of another time")
    assert {} == bad, bad


@pytest.mark.slow
def test_plan_made_anew_on_a_full_store_without_statistics_reads_little(connection: psycopg.Connection[Any]) -> None:
    """A plan from the time when the store was empty may read all of it, until somebody discards it."""
    prepare(connection)
    for name in STATEMENTS:
        explain(connection, name)
    fill(connection, 1_000_000)
    connection.execute("discard plans")
    read = {name: pages(explain(connection, name, ", analyze, buffers")) for name in STATEMENTS}
    assert {} == {name: count for name, count in read.items() if count > 500}, read


def test_claim_takes_few_locks_with_the_most_segments(connection: psycopg.Connection[Any]) -> None:
    """Each part is locked, its indexes only from the floor on: what is ahead is eight segments and the open one."""
    prepare(connection)
    [(floor,)] = connection.execute("select lo from smena.segments order by lo offset 23 limit 1")
    claim = call("jobs/claim", floor=floor, lo=floor, hi=floor).encode()
    connection.execute(claim)  # planning locks more, once
    with connection.transaction(force_rollback=True):
        connection.execute(claim)
        [(count,)] = connection.execute(
            "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation'"
        ).fetchall()
    assert 66 < count < 150
