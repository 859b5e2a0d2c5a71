"""The demo's provider with one fault more: it forgets its keys, and charges every call that it answers or drops."""

from __future__ import annotations

from decimal import Decimal

from smena.demo import provider
from smena.demo.ledger import Charge, Ledger


class ForgetfulLedger(Ledger):
    calls = 0

    def find(self, key: str) -> Charge | None:
        return None

    def charge(self, *, key: str, purchase: int, amount: Decimal) -> Charge:
        self.calls += 1
        return super().charge(key=f"{key} {self.calls}", purchase=purchase, amount=amount)


if __name__ == "__main__":
    provider.Ledger = ForgetfulLedger  # type: ignore[misc]
    provider.main()
