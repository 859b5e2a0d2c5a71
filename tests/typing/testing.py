"""Type-checked, never run: what `smena.testing` takes and returns."""

from __future__ import annotations

from typing import assert_type

from smena import Smena, testing
from smena.testing import Drained, EnqueuedJob, FailedJob

app = Smena()


@app.task
def charge(purchase: int) -> None: ...


def in_a_test() -> None:
    with testing.inline(app) as same, testing.manual(app):
        assert_type(same, Smena)
    drained = testing.drain(app, "payments", until="done", with_scheduled=True)
    assert_type(drained, Drained)
    assert_type(drained.done, int)
    assert_type(drained.failures[0], FailedJob)
    assert_type(drained.failures[0].error, BaseException | None)
    testing.drain(app, ["payments", "mail"], conn=object(), lifespan=False)
    testing.drain(app, until="ready")  # type: ignore[arg-type]
    assert_type(testing.enqueued(app), list[EnqueuedJob])
    assert_type(testing.assert_enqueued(charge, args=(17,), kwargs={}, count=1), list[EnqueuedJob])
    testing.refute_enqueued(charge, queue="payments", order_key="k")
    testing.refute_enqueued("charge")  # type: ignore[arg-type]


async def in_an_async_test() -> None:
    assert_type(await testing.adrain(app), Drained)
    assert_type(await testing.aenqueued(charge), list[EnqueuedJob])
    assert_type(await testing.aassert_enqueued(app), list[EnqueuedJob])
    await testing.arefute_enqueued(app)
