"""The demo's handler against a fake provider: which answer becomes which failure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from smena import Permanent, Transient, current
from smena.demo import shop

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _job() -> Iterator[None]:
    token = current._current.set(SimpleNamespace(idempotency_key="key-17"))  # type: ignore[arg-type]
    yield
    current._current.reset(token)


@pytest.fixture
def charge(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Charges purchase 17 at a provider that answers as it is told."""

    async def serve(answer: Answer) -> None:
        app = web.Application()
        app.router.add_post("/charges", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            monkeypatch.setenv("PROVIDER_URL", f"http://127.0.0.1:{runner.addresses[0][1]}")
            async with shop.open_provider():
                await shop.charge.function(17, Decimal("29.30"))
        finally:
            await runner.cleanup()

    return lambda answer: asyncio.run(serve(answer))


def _status(status: int, **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text="so it is", headers=named)

    return answer


def test_the_key_and_the_amount_are_sent_as_the_provider_wants_them(charge: Any) -> None:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.headers["Idempotency-Key"], await request.json()))
        return web.Response(status=201)

    charge(answer)

    assert [("key-17", {"purchase": 17, "amount": "29.30"})] == seen


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (422, "VALIDATION"),
        (400, "PERMANENT"),
        (409, "PERMANENT"),
    ],
)
def test_a_refusal_is_never_retried(charge: Any, status: int, kind: str) -> None:
    with pytest.raises(Permanent) as raised:
        charge(_status(status))

    assert kind == raised.value.kind
    assert f"{status} so it is" == raised.value.detail


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "RATE_LIMITED"),
        (500, "EXTERNAL_5XX"),
        (503, "EXTERNAL_5XX"),
    ],
)
def test_the_providers_trouble_is_retried_when_it_asks_for_it(charge: Any, status: int, kind: str) -> None:
    for header, pause in [({}, None), ({"Retry_After": "7"}, 7.0), ({"Retry_After": "Fri, 31 Dec 1999"}, None)]:
        with pytest.raises(Transient) as raised:
            charge(_status(status, **header))

        assert kind == raised.value.kind
        assert pause == raised.value.retry_after


def test_a_refused_connection_means_that_nothing_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PROVIDER_URL", f"http://127.0.0.1:{free.getsockname()[1]}")

        async def call() -> None:
            async with shop.open_provider():
                await shop.charge.function(17, Decimal("29.30"))

        with pytest.raises(Transient) as raised:
            asyncio.run(call())

    assert "EXTERNAL_UNAVAILABLE" == raised.value.kind


async def _dropped(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _half_an_answer(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(status=201, headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b"{")
    assert request.transport is not None
    request.transport.abort()
    return answer


async def _too_late(_request: web.Request) -> web.Response:
    await asyncio.sleep(1)
    return web.Response(status=201)


@pytest.mark.parametrize("answer", [_dropped, _half_an_answer, _too_late])
def test_a_lost_answer_is_repeated_because_the_key_makes_it_safe(
    charge: Any, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = aiohttp.ClientTimeout(total=0.2)
    monkeypatch.setattr(aiohttp, "ClientTimeout", lambda total: short)

    with pytest.raises(Transient) as raised:
        charge(answer)

    assert "EXTERNAL_TIMEOUT" == raised.value.kind
