"""The provider's HTTP side: checks a request, lets it fail by design, or charges it.

One key is charged at most once. The latency passes first; then looking the key up and charging it are one step of the
event loop, in a process that alone holds the ledger: two calls in flight with one key meet at that step, and the second
finds the first one's charge. A caller that hangs up does not stop its call: the handler runs to its end, as it would
at a provider that never learns of the hang-up.
"""

from __future__ import annotations

import json
import re
from asyncio import sleep
from collections import Counter
from decimal import Decimal

from aiohttp import web

from smena.demo.faults import Faults
from smena.demo.ledger import Charge, Ledger

STATS = (
    "calls", "charged", "repeated", "unavailable", "dropped", "conflict", "refused", "malformed", "most_in_flight",
)  # fmt: skip

_AMOUNT = re.compile(r"\d{1,9}\.\d\d", re.ASCII)


class ChargeApi:
    """POST /charges, GET /ledger (what was charged, ever), GET /stats (how the calls of this process went)."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults
        self._calls_of = Counter[int]()
        self._stats = Counter[str]()
        self._in_flight = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/charges", self._post_charge)
        app.router.add_get("/ledger", self._get_ledger)
        app.router.add_get("/stats", self._get_stats)
        return app

    async def _post_charge(self, request: web.Request) -> web.Response:
        self._stats["calls"] += 1
        self._in_flight += 1
        self._stats["most_in_flight"] = max(self._stats["most_in_flight"], self._in_flight)
        try:
            return await self._charge(request)
        finally:
            self._in_flight -= 1

    async def _charge(self, request: web.Request) -> web.Response:
        try:
            key, purchase, amount = _parse(request.headers.get("Idempotency-Key", ""), await request.read())
        except ValueError as error:
            return self._refuse(400, "malformed", str(error))
        await sleep(self._faults.latency)
        # From here on nothing is awaited: this is the one step that the argument above speaks of.
        self._calls_of[purchase] += 1
        fault = self._faults.draw(purchase=purchase, call=self._calls_of[purchase])
        charge = self._ledger.find(key)
        if charge is not None and (charge.purchase, charge.amount) != (purchase, amount):
            return self._refuse(409, "conflict", f"key {key} belongs to a charge of purchase {charge.purchase}")
        if amount == 0:
            return self._refuse(422, "refused", "amount is 0.00: there is nothing to charge")
        if fault == "unavailable":
            return self._refuse(503, "unavailable", "nothing was charged; try again later")
        if charge is not None:
            self._stats["repeated"] += 1
        else:
            charge = self._ledger.charge(key=key, purchase=purchase, amount=amount)
            self._stats["charged"] += 1
        if fault == "dropped":
            self._stats["dropped"] += 1
            if request.transport is not None:
                request.transport.abort()
        return web.json_response(_answer(charge), status=201)

    def _refuse(self, status: int, error: str, detail: str) -> web.Response:
        self._stats[error] += 1
        return web.json_response({"error": error, "detail": detail}, status=status)

    async def _get_ledger(self, _request: web.Request) -> web.Response:
        totals = self._ledger.totals()
        return web.json_response(
            {
                "count": sum(count for count, _ in totals.values()),
                "amount": str(sum((amount for _, amount in totals.values()), Decimal("0.00"))),
                "purchases": {
                    str(purchase): {"charges": count, "amount": str(amount)}
                    for purchase, (count, amount) in sorted(totals.items())
                },
            }
        )

    async def _get_stats(self, _request: web.Request) -> web.Response:
        return web.json_response({name: self._stats[name] for name in STATS} | {"in_flight": self._in_flight})


def _parse(key: str, body: bytes) -> tuple[str, int, Decimal]:
    if not 1 <= len(key) <= 255:
        raise ValueError("the header Idempotency-Key takes 1 to 255 characters")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.keys() != {"purchase", "amount"}:
        raise ValueError("the body is an object with purchase and amount, and nothing else")
    purchase, amount = fields["purchase"], fields["amount"]
    if type(purchase) is not int or purchase < 1:
        raise ValueError(f"purchase is a whole number from 1, not {purchase!r}")
    if not isinstance(amount, str) or not _AMOUNT.fullmatch(amount):
        raise ValueError(f"amount is a text like '29.33', not {amount!r}")
    return key, purchase, Decimal(amount)


def _answer(charge: Charge) -> dict[str, object]:
    return {"charge": charge.id, "purchase": charge.purchase, "amount": str(charge.amount)}
