"""The demo's comparison can fail: each kind of wrong is found, and counted where it belongs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from smena.demo.balance import Balance, compare
from smena.demo.books import Charged
from smena.demo.purchases import Purchase
from smena.demo.sales import Sale

FIVE = Decimal("5.00")
ZERO = Decimal("0.00")
PURCHASES = [Purchase(n, 1, date(1997, 1, 1), 1, FIVE) for n in (1, 2)] + [Purchase(3, 1, date(1997, 1, 1), 1, ZERO)]


def _sales(**changed: Sale | None) -> list[Sale]:
    good = {
        "1": Sale(1, FIVE, "done", None),
        "2": Sale(2, FIVE, "done", None),
        "3": Sale(3, ZERO, "failed", "VALIDATION"),
    }
    return [sale for sale in {**good, **{name.lstrip("_"): sale for name, sale in changed.items()}}.values() if sale]


LEDGER = {1: Charged(1, FIVE), 2: Charged(1, FIVE)}


def test_a_good_run_has_no_problems() -> None:
    assert Balance(2, Decimal("10.00"), 1, ()) == compare(PURCHASES, _sales(), 3, LEDGER)


@pytest.mark.parametrize(
    ("ledger", "problem"),
    [
        ({2: Charged(2, FIVE * 2)}, "charged more than once: 1 purchase, number 2"),
        ({2: Charged(2, FIVE)}, "charged more than once: 1 purchase, number 2"),
        ({2: Charged(1, Decimal("5.01"))}, "charged with another amount than it was bought for: 1 purchase, number 2"),
        ({1: None, 2: None}, "never charged: 2 purchases, number 1, 2"),
        ({3: Charged(1, ZERO)}, "charged, although it amounts to 0.00: 1 purchase, number 3"),
        ({4: Charged(1, FIVE)}, "charged, but nobody bought it: 1 purchase, number 4"),
    ],
)
def test_a_wrong_ledger_is_a_problem(ledger: dict[int, Charged | None], problem: str) -> None:
    changed = {number: charged for number, charged in {**LEDGER, **ledger}.items() if charged is not None}

    assert (problem,) == compare(PURCHASES, _sales(), 3, changed).problems


@pytest.mark.parametrize(
    ("number", "sale", "problem"),
    [
        (2, Sale(2, FIVE, "failed", "EXTERNAL_5XX"), "its job is failed as EXTERNAL_5XX, and should be done"),
        (2, Sale(2, FIVE, "running", None), "its job is running, and should be done"),
        (2, Sale(2, FIVE, None, None), "its job is lost, and should be done"),
        (2, Sale(2, Decimal("6.00"), "done", None), "stored with another amount than it was bought for"),
        (3, Sale(3, ZERO, "done", None), "its job is done, and should be failed as VALIDATION"),
        (3, Sale(3, ZERO, "failed", "ERROR"), "its job is failed as ERROR, and should be failed as VALIDATION"),
    ],
)
def test_a_job_that_ended_otherwise_is_a_problem(number: int, sale: Sale, problem: str) -> None:
    balance = compare(PURCHASES, _sales(**{f"_{number}": sale}), 3, LEDGER)

    assert (f"{problem}: 1 purchase, number {number}",) == balance.problems
    assert ((2, 0) if number == 3 else (1, 1)) == (balance.charged, balance.refused)


def test_a_purchase_that_is_not_in_the_table_is_lost() -> None:
    problems = compare(PURCHASES, _sales(_2=None), 2, LEDGER).problems

    assert ("not in the shop's table: 1 purchase, number 2",) == problems


def test_a_purchase_that_nobody_made_is_a_problem() -> None:
    problems = compare(PURCHASES, _sales(_4=Sale(4, FIVE, "done", None)), 4, LEDGER).problems

    assert ("in the shop's table, but nobody bought it: 1 purchase, number 4",) == problems


def test_a_second_job_of_a_purchase_is_a_problem() -> None:
    problems = compare(PURCHASES, _sales(), 4, LEDGER).problems

    assert ("there are 4 jobs for 3 purchases in the shop's table",) == problems


def test_a_long_list_of_numbers_is_cut() -> None:
    many = [Purchase(n, 1, date(1997, 1, 1), 1, FIVE) for n in range(1, 1001)]
    sales = [Sale(n, FIVE, "done", None) for n in range(1, 1001)]

    assert ("never charged: 1,000 purchases, number 1, 2, 3, 4, 5 and others",) == compare(
        many, sales, 1000, {}
    ).problems
