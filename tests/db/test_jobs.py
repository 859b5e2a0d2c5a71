"""How jobs are stored and read back, many at once too, and what is refused with nothing stored."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from smena import InvalidArguments, JobUnsuccessful, Retry, Smena, Task
from smena.errors import NotFound

EMOJI = "😀"


class Shop:
    def __init__(self, dsn: str) -> None:
        self.app = Smena(dsn)

        @self.app.task(name="charge")
        def charge(purchase: int, amount: Decimal = Decimal(1), note: str = "") -> None: ...

        self.charge: Task[..., Any] = charge

    def query(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.app.database.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def count(self) -> int:
        return int(self.query("select count(*) from smena.job")[0][0])


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    shop = Shop(database)
    yield shop
    shop.app.close()


# Options


def test_a_moment_keeps_its_instant_in_any_zone(shop: Shop) -> None:
    at = datetime(2040, 3, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=-11, minutes=-30)))
    job = shop.charge.using(run_at=at).enqueue(1)
    past = shop.charge.using(run_at=datetime(1999, 1, 1, tzinfo=UTC)).enqueue(2)
    far = shop.charge.using(run_at=datetime(9999, 12, 31, 23, 59, tzinfo=UTC)).enqueue(3)
    old = shop.charge.using(run_at=datetime(1880, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))).enqueue(4)
    rows = dict(shop.query("select id, run_at from smena.jobs"))
    assert at == rows[job.id]
    assert ["scheduled", "ready", "scheduled", "ready"] == [shop.app.job(j.id).state for j in (job, past, far, old)]


def test_keys_of_full_length_and_any_script_are_stored(shop: Shop) -> None:
    key = EMOJI * 500
    task = shop.charge.using(order_key=key, unique_key=key, idempotency_key=key)
    first = task.enqueue(1)
    assert not task.enqueue(2).created
    row = shop.app.job(first.id).read()
    assert (key, key, key) == (row["order_key"], row["unique_key"], row["idempotency_key"])


def test_a_key_may_be_a_function_of_the_arguments(shop: Shop) -> None:
    by_purchase = shop.charge.using(
        order_key=lambda purchase, amount=None, note="": f"customer-{purchase % 2}" if purchase else None,
        unique_key=lambda purchase, *rest, **more: f"purchase-{purchase}",
    )
    by_purchase.enqueue(1)
    by_purchase.enqueue(purchase=2, amount=Decimal(3))
    by_purchase.enqueue_many([(3, Decimal(1)), {"purchase": 4}, (0,), (1,)])
    assert [("customer-1", "purchase-1"), ("customer-0", "purchase-2"), ("customer-1", "purchase-3"),
            ("customer-0", "purchase-4"), (None, "purchase-0")] == shop.query(
        "select order_key, unique_key from smena.jobs order by id")  # fmt: skip


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (lambda purchase: purchase, "the function for order_key=17: a key is a text of 1 to 500 characters"),
        (lambda purchase: "", "order_key=''"),
        (lambda purchase: "a\0", "without NUL"),
        (lambda purchase: "\ud800", "lone surrogate"),
        (lambda purchase: print, "a key is a text"),
        (
            lambda purchase: 1 // 0,
            r"order_key, called with the arguments as they were passed, raised ZeroDivisionError",
        ),
        (lambda: "k", "raised TypeError"),
    ],
)
def test_a_key_function_that_gives_no_key_is_refused_and_nothing_is_stored(shop: Shop, key: Any, words: str) -> None:
    with pytest.raises(InvalidArguments, match=f"task charge: .*{words}"):
        shop.charge.using(order_key=key).enqueue(17)
    with pytest.raises(InvalidArguments, match=f"call 0 of enqueue_many: .*{words}"):
        shop.charge.using(order_key=key).enqueue_many([(17,), (18,)])
    assert 0 == shop.count()


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"a": 1}, "header 'a': 1 is no text"),
        ({1: "a"}, "header 1: 1 is no text"),
        ({"a": "x\0"}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": "x" * 9000}, "the limit is 8,192"),
    ],
)
def test_headers_that_cannot_travel_are_refused(shop: Shop, headers: Any, words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        shop.charge.using(headers=headers).enqueue(1)
    assert 0 == shop.count()


# Many at once


def test_calls_may_be_tuples_lists_mappings_and_come_from_a_generator(shop: Shop) -> None:
    jobs = shop.charge.enqueue_many(iter([(1,), [2, Decimal("2.50")], {"purchase": 3, "note": EMOJI}]))
    assert [{"purchase": 1}, {"purchase": 2, "amount": "2.50"}, {"purchase": 3, "note": EMOJI}] == [
        shop.app.job(job.id).read()["args"] for job in jobs
    ]
    assert [] == shop.charge.enqueue_many([])
    assert [] == asyncio.run(shop.charge.aenqueue_many([]))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (("x",), r"call 7000 of enqueue_many: task charge: purchase: expected `int`"),
        ((), "call 7000 of enqueue_many: .*missing a required argument"),
        ({"purchase": 1, "colour": 2}, "call 7000 of enqueue_many: .*colour"),
        ({1: 2}, "call 7000 of enqueue_many: "),
        (17, "call 7000 of enqueue_many for task charge is a int: give a tuple of positional or a mapping"),
        ("17", "is a str"),
        (None, "is a NoneType"),
    ],
)
def test_a_bad_call_is_named_by_its_index_and_nothing_is_stored(shop: Shop, bad: Any, words: str) -> None:
    calls: list[Any] = [(n,) for n in range(8_000)]
    calls[7_000] = bad
    with pytest.raises(InvalidArguments, match=words):
        shop.charge.enqueue_many(calls)
    assert 0 == shop.count()


def test_twelve_thousand_jobs_keep_their_order(shop: Shop) -> None:
    jobs = shop.charge.enqueue_many([(n,) for n in range(12_000)])
    ids = [job.id for job in jobs]
    assert ids == sorted(set(ids))
    assert [(id, n) for n, id in enumerate(ids)] == shop.query(
        "select id, (args->'purchase')::int from smena.job order by id"
    )


def test_keys_and_none_go_together_in_one_call(shop: Shop) -> None:
    """A chunk with keys and without, over several chunks, keeps to the order of the calls."""
    task = shop.charge.using(unique_key=lambda purchase: f"u{purchase % 4_000}" if purchase % 2 else None)
    jobs = task.enqueue_many([(n,) for n in range(12_000)])
    made = [n for n, job in enumerate(jobs) if job.created]
    assert made == [n for n in range(12_000) if n % 2 == 0 or n < 4_000]
    first = {n % 4_000: job.id for n, job in enumerate(jobs) if n % 2 and job.created}
    assert all(job.id == first[n % 4_000] for n, job in enumerate(jobs) if n % 2)
    purchases = dict(shop.query("select id, (args->'purchase')::int from smena.job"))
    assert made == [purchases[jobs[n].id] for n in made]


def test_large_arguments_go_in_several_documents_and_too_large_ones_not_at_all(shop: Shop) -> None:
    text = "ж" * 450_000
    jobs = shop.charge.enqueue_many([(n, Decimal(1), text) for n in range(3)])
    assert [900_000] * 3 == [row[0] for row in shop.query("select octet_length(args->>'note') from smena.job")]
    assert [0, 1, 2] == [shop.app.job(job.id).read()["args"]["purchase"] for job in jobs]
    began = time.monotonic()
    with pytest.raises(InvalidArguments, match=r"the arguments are 50,000,0\d\d bytes of JSON, the limit is 1,048,576"):
        shop.charge.enqueue(1, note="x" * 50_000_000)
    assert time.monotonic() - began < 5
    with pytest.raises(InvalidArguments, match=r"call 1 of enqueue_many: .*the limit is 1,048,576"):
        shop.charge.enqueue_many([(1,), (1, Decimal(1), "x" * 1_048_577)])
    assert 3 == shop.count()


def test_ids_grow_from_one_enqueue_to_the_next(shop: Shop) -> None:
    ids = [shop.charge.enqueue(1).id, shop.charge.using(run_in=60).enqueue(1).id]
    ids += [job.id for job in shop.charge.using(order_key="k").enqueue_many([(1,), (2,)])]
    ids += [shop.charge.using(unique_key="u").enqueue(1).id, shop.charge.enqueue(1).id]
    assert ids == sorted(set(ids))


# A stored job


def _end(shop: Shop, id: int, state: str, **columns: str) -> None:
    """As a worker would leave it."""
    more = "".join(f", {name} = {value}" for name, value in columns.items())
    shop.query(
        f"update smena.job set state = '{state}', attempt = 1, finished_at = clock_timestamp(){more} where id = {id}"
    )


def test_a_job_is_read_as_the_row_of_the_view(shop: Shop) -> None:
    job = shop.charge.using(queue="pay", headers={"a": "b"}, priority=3).enqueue(17, Decimal("29.30"))
    row = shop.app.job(job.id).read()
    view = "select column_name from information_schema.columns where table_schema = 'smena' and table_name = 'jobs'"
    columns = [name for (name,) in shop.query(view)]
    assert sorted(columns) == sorted(row)
    expected = {
        "id": job.id, "queue": "pay", "task": "charge", "state": "ready", "priority": 3, "max_attempts": 5,
        "args": {"purchase": 17, "amount": "29.30"}, "headers": {"a": "b"}, "result": None, "failure_kind": None,
    }  # fmt: skip
    assert expected == {name: row[name] for name in expected}
    assert row == asyncio.run(shop.app.job(job.id).aread())
    assert "ready" == shop.app.job(job.id).state


@pytest.mark.parametrize("id", [1, 0, -1, 2**63 - 1, 2**63, 10**40, -(10**40)])
def test_a_job_that_is_not_there_is_not_found(shop: Shop, id: int) -> None:
    handle = shop.app.job(id)
    for call in (
        handle.read,
        lambda: handle.state,
        lambda: handle.wait(5),
        lambda: asyncio.run(handle.await_result(5)),
    ):
        with pytest.raises(NotFound, match=f"no job {id}: it was deleted, its retention is over, or its transaction"):
            call()


def test_waiting_gives_the_result_or_says_why_there_is_none(shop: Shop) -> None:
    done, nothing, failed, unknown, cancelled = (job.id for job in shop.charge.enqueue_many([(n,) for n in range(5)]))
    _end(shop, done, "d", result="'{\"a\": [1, null]}'")
    _end(shop, nothing, "d")
    _end(shop, failed, "f", failure_kind="'VALIDATION'", failure_side="'ours'")
    shop.query(
        "insert into smena.attempts (job_id, attempt, outcome, kind, detail)"
        " values (%s, 1, 'failed', 'VALIDATION', '{\"message\": \"the amount is 0.00\"}')", failed
    )  # fmt: skip
    _end(shop, unknown, "u", failure_kind="'OUTCOME_UNKNOWN'", failure_side="'undecided'")
    _end(shop, cancelled, "c")
    for wait in (
        lambda id: shop.app.job(id).wait(1),
        lambda id: asyncio.run(shop.app.job(id).await_result(1)),
        lambda id: shop.app.job(id).wait(),
    ):
        assert {"a": [1, None]} == wait(done)
        assert wait(nothing) is None
        for id, words in (
            (failed, rf"job {failed} \(charge\) is failed: VALIDATION: the amount is 0.00"),
            (unknown, rf"job {unknown} \(charge\) is unknown: OUTCOME_UNKNOWN"),
            (cancelled, rf"job {cancelled} \(charge\) is cancelled$"),
        ):
            with pytest.raises(JobUnsuccessful, match=words) as raised:
                wait(id)
            assert id == raised.value.job["id"]


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_waiting_ends_in_time(shop: Shop, timeout: float) -> None:
    job = shop.charge.enqueue(1)
    for wait in (shop.app.job(job.id).wait, lambda t: asyncio.run(shop.app.job(job.id).await_result(t))):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=f"job {job.id} is ready after {timeout:g} s"):
            wait(timeout)
        assert timeout <= time.monotonic() - began < timeout + 5


def test_a_waiter_sees_the_outcome_when_it_comes(shop: Shop) -> None:
    job = shop.charge.enqueue(1)
    results: list[Any] = []
    waiter = threading.Thread(target=lambda: results.append(shop.app.job(job.id).wait(30)))
    waiter.start()
    _end(shop, job.id, "d", result="'17'")
    waiter.join(30)
    assert [17] == results


def test_a_refused_argument_stores_nothing(shop: Shop) -> None:
    for call in (
        lambda: shop.charge.enqueue("17"),
        lambda: shop.charge.enqueue(),
        lambda: shop.charge.enqueue(17, colour="red"),
        lambda: shop.charge.enqueue(17, note="\0"),
        lambda: asyncio.run(shop.charge.aenqueue(17, 0.5)),
    ):
        with pytest.raises(InvalidArguments, match="task charge: "):
            call()
    assert 0 == shop.count()


def test_the_attempts_of_the_retry_are_stored_with_the_job(shop: Shop) -> None:
    @shop.app.task(retry=Retry(attempts=32767))
    def often() -> None: ...

    @shop.app.task(retry=Retry(attempts=1), repeat=False)
    def once() -> None: ...

    ids = [often.enqueue().id, once.enqueue().id]
    assert [32767, 1] == [shop.app.job(id).read()["max_attempts"] for id in ids]
