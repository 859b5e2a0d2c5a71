"""What docs/testing.md shows runs as it stands."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from smena import Smena
from smena.testing import assert_enqueued, inline

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCK = re.compile(r"^```(python|ini)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_examples_run(pytester: pytest.Pytester, server_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMENA_TEST_DSN", server_dsn)
    text = PAGE.read_text("utf-8")
    blocks = BLOCK.findall(text)
    assert len(re.findall("^```(?:python|ini)$", text, re.MULTILINE)) == len(blocks)
    files = {name: code for _, name, code in blocks}
    last = [name for name in files if name in ("conftest.py", "test_otherwise.py")]
    for name in files.keys() - set(last):
        (pytester.path / name).write_text(files[name], "utf-8")
    pytester.runpytest_subprocess("-W", "error", "--strict-markers").assert_outcomes(passed=9)
    # What holds for all tests comes in when they have run without it.
    for name in last:
        (pytester.path / name).write_text(files[name], "utf-8")
    pytester.runpytest_subprocess("-W", "error", "test_inline.py", "test_otherwise.py").assert_outcomes(passed=5)


def test_message_is_the_one_that_a_user_sees() -> None:
    shown = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert 1 == len(shown)
    with inline(Smena("postgresql://localhost:1/nowhere")) as app:

        @app.task(name="shop.charge", queue="payments")
        def charge(purchase: int, amount: Decimal) -> None: ...

        job = charge.enqueue(17, Decimal("29.33"))
        with pytest.raises(AssertionError) as raised:
            assert_enqueued(charge, args=(19,), queue="payments")
    seen = str(raised.value).replace(f"job {job.id}:", "job 1:").replace(", done", ", ready")
    assert shown[0] == seen + "\n"
