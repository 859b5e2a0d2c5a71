"""What was enqueued can be asked for, and a wrong guess is told what was there instead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import pytest

from smena import InvalidArguments, Smena
from smena.testing import (
    aassert_enqueued,
    aenqueued,
    arefute_enqueued,
    assert_enqueued,
    enqueued,
    inline,
    refute_enqueued,
)


@pytest.fixture
def app() -> Iterator[Smena]:
    with inline(Smena("postgresql://localhost:1/nowhere")) as app:
        yield app


@pytest.fixture
def shop(app: Smena) -> Smena:
    @app.task(name="charge", queue="payments", order_key=lambda purchase, amount, note="": f"p{purchase}")
    def charge(purchase: int, amount: Decimal, note: str = "") -> None: ...

    @app.task(name="mail")
    async def mail(to: str, *names: str, **more: int) -> None: ...

    charge.enqueue(17, Decimal("29.30"))
    charge.enqueue(18, Decimal("1.50"), note="gift")
    mail.using(priority=5, headers={"trace": "abc"}).enqueue("ann@example.org", "a", "b", size=2)
    return app


def test_what_was_enqueued_is_listed_with_its_options(shop: Smena) -> None:
    charge, mail = shop.tasks["charge"], shop.tasks["mail"]
    first, second = enqueued(charge)
    assert {"purchase": 17, "amount": Decimal("29.30"), "note": ""} == first.arguments
    assert ("charge", "payments", "done", "p17", 0) == (
        first.task,
        first.queue,
        first.state,
        first.order_key,
        first.priority,
    )
    assert first.id < second.id
    (letter,) = enqueued(mail)
    assert {"to": "ann@example.org", "names": ("a", "b"), "more": {"size": 2}} == letter.arguments
    assert (5, {"trace": "abc"}, None) == (letter.priority, letter.headers, letter.order_key)
    assert [first, second, letter] == enqueued(shop) == asyncio.run(aenqueued(shop))


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"args": (17,)},
        {"args": (17, Decimal("29.3"))},
        {"kwargs": {"amount": Decimal("29.3")}},
        {"args": (17,), "kwargs": {"note": ""}},
        {"args": (ANY, Decimal("29.30"))},
        {"queue": "payments", "order_key": "p17"},
        {"count": 2},
        {"args": (17,), "count": 1},
        {"args": (19,), "count": 0},
    ],
)
def test_job_that_fits_is_found(shop: Smena, wish: dict[str, Any]) -> None:
    charge = shop.tasks["charge"]
    found = assert_enqueued(charge, **wish)
    assert asyncio.run(aassert_enqueued(charge, **wish)) == found
    assert wish.get("count") in (None, len(found))
    if found:
        without = {name: value for name, value in wish.items() if name != "count"}
        with pytest.raises(AssertionError, match="was enqueued"):
            refute_enqueued(charge, **without)
        with pytest.raises(AssertionError, match="was enqueued"):
            asyncio.run(arefute_enqueued(charge, **without))


@pytest.mark.parametrize(
    "wish",
    [
        {"args": (19,)},
        {"args": (17,), "kwargs": {"note": "gift"}},
        {"kwargs": {"purchase": "17"}},
        {"args": (17,), "queue": "default"},
        {"order_key": "p19"},
    ],
)
def test_job_that_does_not_fit_is_not_found(shop: Smena, wish: dict[str, Any]) -> None:
    charge = shop.tasks["charge"]
    refute_enqueued(charge, **wish)
    asyncio.run(arefute_enqueued(charge, **wish))
    with pytest.raises(AssertionError, match="no job of charge with"):
        assert_enqueued(charge, **wish)


def test_app_finds_jobs_of_all_its_tasks(shop: Smena) -> None:
    assert ["mail"] == [job.task for job in assert_enqueued(shop, args=("ann@example.org", "a", "b"))]
    assert ["charge"] == [job.task for job in assert_enqueued(shop, kwargs={"note": "gift"})]
    assert 3 == len(assert_enqueued(shop, count=3))


def test_message_lists_what_was_enqueued_instead(shop: Smena) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(shop.tasks["charge"], args=(19,), queue="payments")
    assert str(raised.value).splitlines() == [
        "no job of charge with args=(19,), queue='payments' was enqueued.",
        "Enqueued instead:",
        f"  job {enqueued(shop)[0].id}: charge(purchase=17, amount=Decimal('29.30'), note='')"
        " queue='payments' order_key='p17', done",
        f"  job {enqueued(shop)[1].id}: charge(purchase=18, amount=Decimal('1.50'), note='gift')"
        " queue='payments' order_key='p18', done",
    ]
    with pytest.raises(AssertionError, match=r"1 job of charge with args=\(18,\) was enqueued, not 2:\n  job "):
        assert_enqueued(shop.tasks["charge"], args=(18,), count=2)
    with pytest.raises(AssertionError, match=r"2 jobs of charge were enqueued, not 1:"):
        assert_enqueued(shop.tasks["charge"], count=1)


def test_message_does_not_list_thousands(app: Smena) -> None:
    @app.task
    def charge(purchase: int) -> None: ...

    with pytest.raises(AssertionError, match=r"Nothing else was enqueued\."):
        assert_enqueued(charge)
    charge.enqueue_many([(n,) for n in range(100)])
    with pytest.raises(AssertionError, match=r"and 80 more$"):
        assert_enqueued(charge, args=(100,))


@pytest.mark.parametrize("wish", [{"kwargs": {"purchases": 17}}, {"args": (1, 2, 3, 4)}])
def test_misspelt_argument_is_told_and_not_taken_for_absence(shop: Smena, wish: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"task charge: .*it takes purchase, amount, note"):
        refute_enqueued(shop.tasks["charge"], **wish)
