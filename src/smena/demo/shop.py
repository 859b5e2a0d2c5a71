"""The demo's shop, written as an application writes it: an app, what its workers open once, and one task.

    PROVIDER_URL=… smena worker -A smena.demo.shop:app -q payments

is a worker of it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import aiohttp

from smena import Permanent, Retry, Smena, Transient, current_job

provider: aiohttp.ClientSession


@asynccontextmanager
async def open_provider() -> AsyncIterator[None]:
    """One session for each worker process: it keeps its connections to the provider from job to job."""
    global provider
    async with aiohttp.ClientSession(os.environ["PROVIDER_URL"], timeout=aiohttp.ClientTimeout(total=10)) as provider:
        yield


# A schema of its own, so that the demo never meets the jobs of a real application in the same database.
app = Smena(schema="smena_demo", lifespan=open_provider)


# This provider recovers at once, and somebody is watching: the first pause is 0.2 s in place of the usual 10.
@app.task(queue="payments", retry=Retry(attempts=10, first=0.2, cap=10), timeout=30)
async def charge(purchase: int, amount: Decimal) -> None:
    """Takes the money for a purchase. Executed at least once, charged once because the provider honours the key."""
    order = {"purchase": purchase, "amount": str(amount)}
    key = {"Idempotency-Key": current_job().idempotency_key}
    try:
        async with provider.post("/charges", json=order, headers=key) as answer:
            said = f"{answer.status} {await answer.text()}"
    except aiohttp.ClientConnectorError as error:  # it never reached the provider
        raise Transient("EXTERNAL_UNAVAILABLE", str(error)) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        # The money may have been taken. Asking again is safe only because the key is the same on every attempt and the
        # provider honours it. For a provider without keys, raise OutcomeUnknown here.
        raise Transient("EXTERNAL_TIMEOUT", f"no answer: {error!r}") from error
    pause = _seconds(answer.headers.get("Retry-After"))
    match answer.status:
        case 200 | 201:
            return
        case 422:
            raise Permanent("VALIDATION", said)
        case 429:
            raise Transient("RATE_LIMITED", said, retry_after=pause)
        case status if status >= 500:
            raise Transient("EXTERNAL_5XX", said, retry_after=pause)
        case _:
            raise Permanent(detail=said)


def _seconds(retry_after: str | None) -> float | None:
    """The pause that the provider asks for. Without one, or with a date in its place, the task's `Retry` decides."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
