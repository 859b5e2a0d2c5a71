"""What `--json` prints is what docs/cli-json.md says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli-json.md").read_text("utf-8")
READING = [["job", "list"], ["job", "show", "1"], ["queue", "list"], ["worker", "list"], ["db", "status"], ["check"]]


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words))
def test_every_key_is_documented(words: list[str], smena: Any, stock: Any, module: Callable[[str, str], str]) -> None:
    assert 1 == stock.put("done")
    stock.worker()
    stock.count()
    module("documented", "from smena import Smena\napp = Smena()\n@app.task\ndef work() -> None: ...")
    section = _section(f"### `smena {' '.join(words[:2])}`")
    if words[1:2] == ["show"]:
        section += _section("### `smena job list`")
    answer = smena.json(*words, *(["-A", "documented:app"] if words == ["check"] else []))
    known = set(re.findall(r"`(\w+)`", section)) | {"items", "next"}
    assert set() == set(_keys(answer)) - known


def test_every_reading_command_is_documented() -> None:
    for words in READING:
        assert f"### `smena {' '.join(words[:2])}`" in DOCUMENT


def _section(heading: str) -> str:
    return re.split(r"\n##", DOCUMENT.split(f"{heading}\n")[1])[0]


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            # Below these the keys are the user's, or states.
            if key in ("args", "headers", "result", "failure_detail", "detail"):
                yield key
            elif key == "counts":
                yield key
                for count in inner.values():
                    yield from _keys(count)
            else:
                yield key
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)
