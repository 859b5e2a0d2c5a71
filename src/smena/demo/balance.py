"""The comparison in the end: what the provider really charged, against what the shop sold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from smena.demo.books import Charged
from smena.demo.purchases import Purchase
from smena.demo.sales import Sale

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Balance:
    """`charged` and `refused` are the purchases that ended as they should; `problems` says what did not."""

    charged: int
    amount: Decimal
    refused: int
    problems: tuple[str, ...]


def compare(purchases: Sequence[Purchase], sales: Iterable[Sale], jobs: int, ledger: Mapping[int, Charged]) -> Balance:
    """Holds the input, the shop's table with its `jobs`, and the ledger against each other."""
    sold = {sale.number: sale for sale in sales}
    wrong: dict[str, list[int]] = {}
    charged: list[Purchase] = []
    refused = 0
    for purchase in purchases:
        number = purchase.number
        found = _wrong(purchase, sold.get(number), ledger.get(number))
        for each in found:
            wrong.setdefault(each, []).append(number)
        if not found and purchase.amount == 0:
            refused += 1
        elif not found:
            charged.append(purchase)
    known = {purchase.number for purchase in purchases}
    if strange := sorted(sold.keys() - known):
        wrong["in the shop's table, but nobody bought it"] = strange
    if strange := sorted(ledger.keys() - known):
        wrong["charged, but nobody bought it"] = strange
    problems = [_sentence(what, numbers) for what, numbers in wrong.items()]
    if jobs != len(sold):
        problems.append(f"there are {jobs:,} jobs for {len(sold):,} purchases in the shop's table")
    return Balance(len(charged), sum((p.amount for p in charged), Decimal("0.00")), refused, tuple(problems))


def _wrong(purchase: Purchase, sale: Sale | None, charged: Charged | None) -> list[str]:
    found = []
    if sale is None:
        found.append("not in the shop's table")
    elif sale.amount != purchase.amount:
        found.append("stored with another amount than it was bought for")
    elif (sale.state, sale.failure_kind) != (("failed", "VALIDATION") if purchase.amount == 0 else ("done", None)):
        ended = f"its job is {sale.state or 'lost'}" + (f" as {sale.failure_kind}" if sale.failure_kind else "")
        found.append(f"{ended}, and should be {'failed as VALIDATION' if purchase.amount == 0 else 'done'}")
    if purchase.amount == 0:
        if charged is not None:
            found.append("charged, although it amounts to 0.00")
    elif charged is None or charged.charges == 0:
        found.append("never charged")
    elif charged.charges > 1:
        found.append("charged more than once")
    elif charged.amount != purchase.amount:
        found.append("charged with another amount than it was bought for")
    return found


def _sentence(what: str, numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (" and others" if len(numbers) > _SHOWN else "")
    return f"{what}: {len(numbers):,} {'purchase' if len(numbers) == 1 else 'purchases'}, number {shown}"
