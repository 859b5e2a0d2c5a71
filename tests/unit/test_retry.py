from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smena.retry import Retry

seconds = st.floats(0, 366 * 86400)


def test_defaults_are_five_attempts_from_ten_seconds_doubling() -> None:
    assert Retry(attempts=5, first=10, factor=2, cap=3600, jitter=0.5) == Retry()


def test_pause_grows_by_the_factor_up_to_the_cap() -> None:
    retry = Retry(attempts=9, first=10, factor=3, cap=100, jitter=0)

    assert [retry.pause(n) for n in range(1, 6)] == [10, 30, 90, 100, 100]


def test_jitter_spreads_the_pause_evenly_around_it() -> None:
    retry = Retry(first=100, jitter=0.25)

    assert [retry.pause(1, chance) for chance in (0, 0.5, 1)] == [75, 100, 125]
    assert [retry.pause(9, chance) for chance in (0, 0.5, 1)] == [2700, 3600, 4500]


def test_without_a_chance_the_pause_is_random() -> None:
    random.seed(1)

    pauses = {Retry().pause(1) for _ in range(100)}

    assert len(pauses) > 90
    assert min(pauses) >= 5
    assert max(pauses) <= 15


def test_factor_1_keeps_the_pause() -> None:
    assert Retry(first=7, factor=1, jitter=0).pause(32_767) == 7


def test_first_0_retries_at_once() -> None:
    assert Retry(first=0).pause(30_000) == 0


@given(
    attempt=st.integers(1, 32_767),
    first=seconds,
    cap=seconds,
    factor=st.floats(1, 1e300),
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1),
)
def test_pause_is_finite_and_within_the_jittered_cap(
    attempt: int, first: float, cap: float, factor: float, jitter: float, chance: float
) -> None:
    first, cap = sorted((first, cap))
    pause = Retry(first=first, cap=cap, factor=factor, jitter=jitter).pause(attempt, chance)

    assert 0 <= pause <= cap * (1 + jitter) * (1 + 1e-9)


@given(attempt=st.integers(1, 200), factor=st.floats(1, 10))
def test_pause_never_shrinks_from_attempt_to_attempt(attempt: int, factor: float) -> None:
    retry = Retry(factor=factor, jitter=0)

    assert retry.pause(attempt) <= retry.pause(attempt + 1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("attempts", 0),
        ("attempts", 32_768),
        ("first", -1),
        ("first", 3601),
        ("first", math.nan),
        ("cap", 366 * 86400 + 1),
        ("cap", math.inf),
        ("factor", 0.5),
        ("factor", math.nan),
        ("jitter", -0.1),
        ("jitter", 1.5),
        ("jitter", math.nan),
    ],
)
def test_option_out_of_range_is_refused_and_shown(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"Retry\({option}=\) .*{value!r}"):
        Retry(**{option: value})  # type: ignore[arg-type]


def test_attempts_take_1_to_32767() -> None:
    assert (Retry(attempts=1).attempts, Retry(attempts=32_767).attempts) == (1, 32_767)
