"""What other people wrote reaches the terminal readable, and never as an order to it."""

from __future__ import annotations

import doctest
import json
import unicodedata
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smena.cli import check, text, times
from smena.cli.text import json_line, lines, one_line
from smena.cli.times import ago, exact, span

WORDS = ["日本語のメッセージ", "שלום עולם", "مرحبا", "Привет", "क्षत्रिय", "می\u200cخواهم", "👩\u200d💻", "e\u0301"]


@pytest.mark.parametrize("word", WORDS)
def test_every_script_is_shown_as_it_is(word: str) -> None:
    assert word == one_line(word) == lines(word) == json_line(word)


@pytest.mark.parametrize(
    ("shown", "raw"),
    [
        ("\\x1b[31mred", "\x1b[31mred"),
        ("\\x9b2J", "\x9b2J"),
        ("\\x07\\x08\\x7f", "\x07\x08\x7f"),
        ("\\u202eabc\\u2066", "\u202eabc\u2066"),
        ("a\\nb\\tc\\r", "a\nb\tc\r"),
        ("\\u2028\\ufeff", "\u2028\ufeff"),
        ("\\U000e0041", "\U000e0041"),
        ("\\ud800", "\ud800"),
    ],
)
def test_what_a_terminal_obeys_is_shown_as_its_escape(shown: str, raw: str) -> None:
    assert shown == one_line(raw)


def test_line_breaks_are_kept_where_lines_are_meant() -> None:
    assert "a\nb\n    c\\x1b" == lines("a\r\nb\n\tc\x1b")


@given(st.text())
def test_no_text_whatever_leaves_an_order_in_a_line(raw: str) -> None:
    shown = one_line(raw)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]
    assert not {"\u202a", "\u202b", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068"} & set(shown)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_means_the_same_after_its_escapes(raw: str) -> None:
    document = json.dumps({"text": raw}, ensure_ascii=False)
    assert {"text": raw} == json.loads(json_line(document))
    assert "\x7f" not in json_line(document)


NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("now", 0.4),
        ("1 s ago", 1.9),
        ("59 s ago", 59.9),
        ("1 min ago", 60),
        ("2 h ago", 7300),
        ("3 d ago", 3.5 * 86400),
        ("2 y ago", 800 * 86400),
        ("in 5 min", -301),
    ],
)
def test_moments_are_said_relative_to_the_databases_present(said: str, seconds: float) -> None:
    assert said == ago((NOW - timedelta(seconds=seconds)).isoformat(), NOW)


def test_moments_that_python_cannot_hold_are_shown_as_they_are() -> None:
    assert ("infinity", "-", "-") == (ago("infinity", NOW), ago(None, NOW), exact(None, NOW))


def test_exact_moment_names_its_offset() -> None:
    moment = datetime(2026, 12, 1, 11, 59, 30, tzinfo=UTC)
    assert f"{moment.astimezone():%Y-%m-%d %H:%M:%S %z} (30 s ago)" == exact("2026-12-01T11:59:30+00:00", NOW)


def test_short_durations_are_said_in_milliseconds() -> None:
    assert ("12 ms", "0 ms", "1 s") == (span(0.0129), span(-1), span(1))


@pytest.mark.parametrize("module", [text, times, check], ids=lambda module: module.__name__)
def test_examples_in_the_code_hold(module: ModuleType) -> None:
    assert 0 == doctest.testmod(module).failed
