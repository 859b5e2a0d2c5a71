"""Checked by mypy, never run: a right call passes, and each wrong one is marked with the error it must give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from smena import Enqueued, Retry, Smena

app = Smena()


@app.task(queue="payments", retry=Retry(attempts=10), timeout=30)
async def charge(purchase: int, amount: Decimal, note: str = "") -> None: ...


@app.task
def mail(to: str) -> str:
    return to


async def right(connection: Any) -> None:
    enqueued: Enqueued = charge.enqueue(17, Decimal("29.33"))
    charge.enqueue(17, amount=Decimal("29.33"), note="x")
    charge.enqueue(17, Decimal("29.33"), conn=connection)
    charge.using(run_in=300, priority=5, order_key="customer-4", conn=connection).enqueue(17, Decimal(1))
    enqueued = await charge.aenqueue(17, Decimal("29.33"), conn=connection)
    charge.enqueue_many([(17, Decimal(1)), (18, Decimal(2))], conn=connection)
    await charge(17, Decimal(1))
    text: str = mail("a")
    print(enqueued, text)


async def wrong(connection: Any) -> None:
    charge.enqueue("17", Decimal("29.33"))  # type: ignore[call-overload]
    charge.enqueue(17)  # type: ignore[call-overload]
    charge.enqueue(17, Decimal(1), colour="red")  # type: ignore[call-overload]
    charge.using(conn=connection).enqueue(17, 29.33)  # type: ignore[call-overload]
    charge.enqueue("17", Decimal(1), conn=connection)  # type: ignore[call-overload]
    await charge.aenqueue(17, conn=connection)  # type: ignore[call-overload]
    charge.using(colour="red")  # type: ignore[call-arg]
    await charge.aenqueue(17, "29.33")  # type: ignore[call-overload]
    await charge("17", Decimal(1))  # type: ignore[arg-type]
    mail(17)  # type: ignore[arg-type]
