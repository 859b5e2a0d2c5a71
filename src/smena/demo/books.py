"""The provider's side of the story, asked of the provider: what it charged, and how the calls went."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Charged:
    """What the ledger says of one purchase: how many charges, and their sum."""

    charges: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Books:
    """`ledger` by purchase. Calls: `unavailable` were answered 503, `dropped` got no answer to a charge that was made,
    `repeated` came under a key that was charged already, `refused` had an amount of nothing."""

    ledger: Mapping[int, Charged]
    calls: int
    unavailable: int
    dropped: int
    repeated: int
    refused: int


def read_books(url: str) -> Books:
    """Asks the provider at `url`."""
    ledger = {
        int(purchase): Charged(entry["charges"], Decimal(entry["amount"]))
        for purchase, entry in _get(url, "/ledger")["purchases"].items()
    }
    stats = _get(url, "/stats")
    return Books(ledger, *(stats[name] for name in ("calls", "unavailable", "dropped", "repeated", "refused")))


def _get(url: str, path: str) -> dict[str, Any]:
    # No proxy: the provider is on loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url + path, timeout=60) as answer:
        fields: dict[str, Any] = json.loads(answer.read())
        return fields
