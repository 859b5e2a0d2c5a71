"""The demo's provider, as its callers meet it: a process of its own on loopback."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from smena.demo.faults import Faults


class RunningProvider:
    """A provider process and a way to call it."""

    def __init__(self, ledger: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "smena.demo.provider", "--ledger", str(ledger), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        first_line = self.process.stdout.readline()
        self.port = int(first_line) if first_line else 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def charge(self, key: str, purchase: object, amount: object) -> tuple[int, dict[str, Any]]:
        return self.post(key, json.dumps({"purchase": purchase, "amount": amount}))

    def post(self, key: str | None, body: str) -> tuple[int, dict[str, Any]]:
        with closing(self.connect()) as connection:
            connection.request("POST", "/charges", body, {"Idempotency-Key": key} if key is not None else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def get(self, path: str) -> dict[str, Any]:
        with closing(self.connect()) as connection:
            connection.request("GET", path)
            fields: dict[str, Any] = json.loads(connection.getresponse().read())
            return fields

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., RunningProvider]
CALM = ("--latency", "0", "--unavailable", "0", "--dropped", "0")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "charges.jsonl"


@pytest.fixture
def start(ledger: Path) -> Iterator[Start]:
    """Starts a provider on the test's ledger; without options one that never fails."""
    providers: list[RunningProvider] = []

    def start(*options: str) -> RunningProvider:
        providers.append(RunningProvider(ledger, *CALM, *options))
        return providers[-1]

    yield start
    for provider in providers:
        provider.kill()


def test_charge_is_answered_and_stands_in_the_ledger(start: Start) -> None:
    provider = start()

    assert provider.charge("a", 17, "29.33") == (201, {"charge": 1, "purchase": 17, "amount": "29.33"})
    assert provider.charge("b", 17, "0.67") == (201, {"charge": 2, "purchase": 17, "amount": "0.67"})
    assert provider.get("/ledger") == {
        "count": 2,
        "amount": "30.00",
        "purchases": {"17": {"charges": 2, "amount": "30.00"}},
    }


def test_same_key_gets_the_same_answer_without_a_second_charge(start: Start) -> None:
    provider = start()
    first = provider.charge("a", 17, "29.33")

    assert provider.charge("a", 17, "29.33") == first
    assert provider.get("/ledger")["count"] == 1
    assert provider.get("/stats") == {
        "calls": 2,
        "charged": 1,
        "repeated": 1,
        "unavailable": 0,
        "dropped": 0,
        "conflict": 0,
        "refused": 0,
        "malformed": 0,
        "most_in_flight": 1,
        "in_flight": 0,
    }


def test_same_key_for_another_body_is_a_conflict(start: Start) -> None:
    provider = start()
    provider.charge("a", 17, "29.33")

    assert provider.charge("a", 18, "29.33")[0] == 409
    assert provider.charge("a", 17, "29.34")[0] == 409
    assert provider.charge("a", 17, "0.00")[0] == 409
    assert provider.get("/ledger")["amount"] == "29.33"


def test_same_key_twice_in_flight_charges_once(start: Start) -> None:
    provider = start("--latency", "0.3")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: provider.charge("a", 17, "29.33"), range(8)))

    assert answers == [(201, {"charge": 1, "purchase": 17, "amount": "29.33"})] * 8
    assert provider.get("/ledger")["count"] == 1
    # Else the calls did not meet and the test showed nothing.
    assert provider.get("/stats")["most_in_flight"] > 1


def test_amount_of_nothing_is_refused(start: Start) -> None:
    provider = start()

    assert provider.charge("a", 17, "0.00")[0] == 422
    assert provider.get("/ledger") == {"count": 0, "amount": "0.00", "purchases": {}}


MALFORMED = [
    "",
    "{",
    "[" * 100_000,
    "[]",
    '{"purchase": 17}',
    '{"purchase": 17, "amount": "1.00", "more": 1}',
    '{"purchase": "17", "amount": "1.00"}',
    '{"purchase": true, "amount": "1.00"}',
    '{"purchase": 0, "amount": "1.00"}',
    '{"purchase": 17, "amount": 1.00}',
    '{"purchase": 17, "amount": "1.0"}',
    '{"purchase": 17, "amount": "-1.00"}',
    '{"purchase": 17, "amount": "1.00\\n"}',
]


def test_malformed_body_is_refused(start: Start) -> None:
    provider = start()

    answers = {body: provider.post("a", body) for body in MALFORMED}

    assert {body for body, (status, _) in answers.items() if status != 400} == set()
    assert provider.get("/stats")["malformed"] == len(MALFORMED)
    assert provider.get("/ledger")["count"] == 0


def test_charge_needs_a_key(start: Start) -> None:
    provider = start()

    assert provider.post(None, '{"purchase": 17, "amount": "1.00"}')[0] == 400
    assert provider.charge("k" * 256, 17, "1.00")[0] == 400
    assert provider.get("/ledger")["count"] == 0


def test_unavailable_call_charges_nothing(start: Start) -> None:
    provider = start("--unavailable", "1")

    assert provider.charge("a", 17, "29.33")[0] == 503
    assert provider.get("/ledger")["count"] == 0


def test_dropped_call_charges_once_and_loses_every_answer(start: Start) -> None:
    provider = start("--dropped", "1")

    for _ in range(3):
        with pytest.raises(ConnectionError):
            provider.charge("a", 17, "29.33")

    assert provider.get("/ledger")["purchases"] == {"17": {"charges": 1, "amount": "29.33"}}
    stats = provider.get("/stats")
    assert (stats["charged"], stats["repeated"], stats["dropped"]) == (1, 2, 3)


def test_caller_who_hangs_up_is_charged_all_the_same(start: Start) -> None:
    provider = start("--latency", "0.2")
    with closing(provider.connect()) as caller:
        caller.request("POST", "/charges", '{"purchase": 17, "amount": "29.33"}', {"Idempotency-Key": "a"})
        while provider.get("/stats")["calls"] == 0:
            pass

    # The second call of the same key passes the same latency, so it is answered after the first one ended.
    assert provider.charge("a", 17, "29.33")[1]["charge"] == 1
    assert provider.get("/stats")["repeated"] == 1


def test_provider_that_was_killed_honours_its_old_keys(start: Start) -> None:
    killed = start()
    first = killed.charge("a", 17, "29.33")
    killed.kill()
    provider = start()

    assert provider.charge("a", 17, "29.33") == first
    assert provider.charge("a", 18, "29.33")[0] == 409
    assert provider.charge("b", 18, "1.00")[1]["charge"] == 2
    assert provider.get("/ledger")["count"] == 2


def test_line_cut_short_by_a_kill_was_never_a_charge(start: Start, ledger: Path) -> None:
    killed = start()
    killed.charge("a", 17, "29.33")
    killed.kill()
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + whole[:20])
    provider = start()

    assert provider.get("/ledger")["count"] == 1
    provider.charge("b", 18, "1.00")
    provider.kill()
    assert start().get("/ledger")["count"] == 2


def test_ledger_with_a_foreign_line_is_refused(start: Start, ledger: Path) -> None:
    ledger.write_text('{"hello": "world"}\n')

    _, complaint = start().process.communicate()

    assert "charges.jsonl, line 1 is not a charge" in complaint


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked on Windows")
def test_two_providers_cannot_share_a_ledger(start: Start) -> None:
    start()
    second = start()

    _, complaint = second.process.communicate()

    assert second.process.returncode == 1
    assert "is held by another provider" in complaint


def test_provider_ends_when_its_standard_input_closes(start: Start) -> None:
    provider = start("--until-eof")

    _, complaint = provider.process.communicate(timeout=30)

    assert (provider.process.returncode, complaint) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_provider_ends_cleanly_on_sigterm(start: Start) -> None:
    provider = start("--until-eof")
    provider.process.terminate()

    assert provider.process.wait(timeout=30) == 0


def test_same_seed_fails_the_same_calls_at_about_the_stated_shares() -> None:
    def drawn(seed: int) -> list[str | None]:
        return [Faults(seed=seed).draw(purchase=n, call=c) for n in range(1, 10_001) for c in (1, 2)]

    shares = Counter(drawn(1))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert 0.045 < shares["unavailable"] / 20_000 < 0.055
    assert 0.017 < shares["dropped"] / 20_000 < 0.023


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(ValueError, match=r"add up to 0 to 1, not 0\.9 and 0\.2"):
        Faults(unavailable=0.9, dropped=0.2)
