"""The provider's books: which keys were charged, in a file that is only ever appended to.

A charge counts once its line is in the file, which happens before it is answered: a provider that is killed and
started again knows every key it ever answered. A line cut short by the kill was not answered and is cut off on
opening. Lines are flushed to the operating system, not to the disk: the file must outlive the process, which is what
the demo kills. One process holds the file at a time, so that two providers cannot each charge the same key.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path


class LedgerError(Exception):
    """The ledger file cannot be used: in use by another provider, or not a ledger."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Money taken once, under one key. `id` is its place in the ledger."""

    id: int
    key: str
    purchase: int
    amount: Decimal


class Ledger:
    """Every charge by its key. `charge` is one step: between looking for the key and writing it nothing else runs."""

    def __init__(self, path: Path) -> None:
        self._by_key: dict[str, Charge] = {}
        self._file = path.open("a+b")
        try:
            _hold(self._file.fileno(), path)
            self._load(path)
        except BaseException:
            self._file.close()
            raise

    def find(self, key: str) -> Charge | None:
        return self._by_key.get(key)

    def charge(self, *, key: str, purchase: int, amount: Decimal) -> Charge:
        """Writes a charge. The key must be new: see `find`."""
        if key in self._by_key:
            raise ValueError(f"key {key!r} was charged already: {self._by_key[key]}")
        charge = Charge(len(self._by_key) + 1, key, purchase, amount)
        line = json.dumps(asdict(charge) | {"amount": str(amount)})
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self._by_key[key] = charge
        return charge

    def totals(self) -> dict[int, tuple[int, Decimal]]:
        """Number of charges and their sum for each purchase."""
        totals: dict[int, tuple[int, Decimal]] = {}
        for charge in self._by_key.values():
            count, amount = totals.get(charge.purchase, (0, Decimal(0)))
            totals[charge.purchase] = count + 1, amount + charge.amount
        return totals

    def close(self) -> None:
        self._file.close()

    def _load(self, path: Path) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                fields = json.loads(line)
                charge = Charge(**(fields | {"amount": Decimal(fields["amount"])}))
            except (ValueError, TypeError, KeyError, ArithmeticError):
                raise LedgerError(f"{path}, line {number} is not a charge; name another --ledger file.") from None
            self._by_key[charge.key] = charge
            end += len(line)
        self._file.truncate(end)


def _hold(descriptor: int, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LedgerError(
            f"{path} is held by another provider (this one is process {os.getpid()}); stop that one first."
        ) from None
