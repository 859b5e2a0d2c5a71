from __future__ import annotations

import dataclasses
import math

import pytest

from smena.jobs import TERMINAL, Cancel, Enqueued, JobState, Snooze


def test_states_are_the_words_of_the_view() -> None:
    assert {str(state) for state in JobState} == {
        "scheduled",
        "blocked",
        "ready",
        "running",
        "done",
        "failed",
        "unknown",
        "cancelled",
    }


def test_unknown_is_not_terminal_because_a_person_must_decide() -> None:
    assert {"done", "failed", "cancelled"} == TERMINAL


def test_enqueued_tells_whether_this_call_made_the_job() -> None:
    assert Enqueued(7).created is True
    assert Enqueued(7, created=False) != Enqueued(7)


@pytest.mark.parametrize("seconds", [0, 0.5, 31_622_400])
def test_snooze_takes_up_to_366_days(seconds: float) -> None:
    assert Snooze(seconds).seconds == seconds


@pytest.mark.parametrize("seconds", [-1, -0.001, 31_622_401, math.nan, math.inf])
def test_snooze_refuses_a_pause_out_of_range_and_shows_it(seconds: float) -> None:
    with pytest.raises(ValueError, match=f"0 to 31622400 seconds, not {seconds!r}"):
        Snooze(seconds)


def test_what_a_handler_returns_cannot_be_changed() -> None:
    for value, name in ((Snooze(1), "seconds"), (Cancel("gone"), "reason"), (Enqueued(1), "id")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 2)
