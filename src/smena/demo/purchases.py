"""The demo's input: purchases read from the CDNOW files, in either of their two formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from smena.errors import ConfigurationError

SAMPLE = Path(__file__).with_name("cdnow-sample.txt")

# The sample: customer in the master file, customer in the sample, date, CDs, amount. The master file lacks the second.
_COLUMNS = (5, 4)
_AMOUNT = re.compile(r"\d+\.\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Purchase:
    """One purchase. `number` is its place in the file, from 1; `customer` the number used by the master file."""

    number: int
    customer: int
    date: date
    quantity: int
    amount: Decimal


def read_purchases(path: Path = SAMPLE) -> Iterator[Purchase]:
    """Yields the purchases of `path` in the order of the file; a line that is no purchase ends it with an error.

    >>> next(read_purchases())
    Purchase(number=1, customer=4, date=datetime.date(1997, 1, 1), quantity=2, amount=Decimal('29.33'))
    """
    columns = 0
    number = 0
    try:
        # A byte outside ASCII becomes a character that no column accepts, and so an error with a line number.
        with path.open(encoding="ascii", errors="replace") as lines:
            for line_number, line in enumerate(lines, start=1):
                fields = line.split()
                if not fields or (number == 0 and "customer_id" in fields):
                    continue
                columns = columns or len(fields)
                if columns not in _COLUMNS:
                    raise _bad(path, line_number, line, f"it has {columns} columns, not 5 (sample) or 4 (master file)")
                if len(fields) != columns:
                    raise _bad(path, line_number, line, f"it has {len(fields)} columns, those before it {columns}")
                number += 1
                try:
                    yield _purchase(number, fields)
                except ValueError as error:
                    raise _bad(path, line_number, line, str(error)) from None
    except OSError as error:
        raise ConfigurationError(f"The purchases cannot be read from {path}: {error.strerror}.") from error


def count_zero_amounts(purchases: Iterable[Purchase]) -> int:
    """How many purchases amount to nothing, which no provider accepts."""
    return sum(purchase.amount == 0 for purchase in purchases)


def _purchase(number: int, fields: list[str]) -> Purchase:
    customer, day, quantity, amount = fields[0], *fields[-3:]
    if not _AMOUNT.fullmatch(amount):
        raise ValueError(f"amount {amount!r} is not a number with two decimals")
    return Purchase(number, _count("customer", customer), _date(day), _count("quantity", quantity), Decimal(amount))


def _count(column: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{column} {text!r} is not a whole number")
    return int(text)


def _date(text: str) -> date:
    try:
        if len(text) != 8:
            raise ValueError
        return datetime.strptime(text, "%Y%m%d").date()
    except ValueError:
        raise ValueError(f"date {text!r} is not a day written YYYYMMDD") from None


def _bad(path: Path, line_number: int, line: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}, line {line_number} is not a purchase: {reason}: {line.strip()[:80]!r}. Mend or remove the line."
    )
