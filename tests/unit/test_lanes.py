"""Where claims start, and which lane comes next."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from smena._worker.lanes import Lane, Lanes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _lanes(*rows: tuple[int, int, str], clock: Clock | None = None) -> Lanes:
    lanes = Lanes(clock or Clock())
    lanes.update([(id, "q", priority, kind, 0, None, False) for id, priority, kind in rows], 10**9)
    lanes.found([id for id, _, _ in rows])
    return lanes


def _served(lanes: Lanes, claims: int) -> list[int]:
    chosen = [lanes.next() for _ in range(claims)]
    return [lane.id for lane in chosen if lane is not None]


def test_returned_work_comes_before_new_work_of_its_priority() -> None:
    assert [2] * 9 == _served(_lanes((1, 0, "n"), (2, 0, "r")), 9)


def test_one_claim_in_ten_is_kept_for_new_work() -> None:
    served = _served(_lanes((1, 0, "n"), (2, 0, "r")), 100)
    assert 10 == served.count(1)


def test_a_higher_priority_comes_first_and_one_claim_in_twenty_goes_to_the_lowest() -> None:
    served = _served(_lanes((1, 5, "n"), (2, 0, "n"), (3, -5, "n")), 100)
    assert (95, 0, 5) == (served.count(1), served.count(2), served.count(3))


def test_suspects_are_never_served_among_others() -> None:
    lanes = _lanes((1, 0, "s"), (2, 0, "n"))
    assert [2] * 40 == _served(lanes, 40)
    suspects = lanes.suspects()
    assert suspects is not None
    assert 1 == suspects.id


def test_a_paused_queue_is_not_served() -> None:
    lanes = _lanes((1, 0, "n"))
    lanes.update([(1, "q", 0, "n", 0, None, True)], 10**9)
    assert lanes.next() is None
    assert ([], []) == lanes.floors()
    assert lanes.update([(1, "q", 0, "n", 0, None, False)], 10**9), "going on is news"


def test_a_claim_looks_back_one_second_but_not_over_a_thousand_positions() -> None:
    lane = Lane(1, "q", 0, "n", 0)
    lane.claimed(100, 0, 10.0)
    lane.claimed(600, 0, 10.5)
    assert 0 == lane.floor(10.9), "within the second: where the floor was before"
    assert 100 == lane.floor(11.2)
    assert 600 == lane.floor(11.6), "a second after the last claim nothing is looked at again"
    lane.claimed(5_000, 0, 11.7)
    assert 5_000 == lane.floor(11.8), "too far to walk: stragglers are reported instead"


def test_a_claim_of_an_earlier_generation_does_not_raise_the_floor() -> None:
    lane = Lane(1, "q", 0, "n", 500)
    generation = lane.generation
    lane.heed(300, 20.0)
    lane.claimed(600, generation, 20.1)
    assert 299 == lane.reached


def test_a_straggler_is_gone_back_to_ever_more_seldom() -> None:
    lane = Lane(1, "q", 0, "n", 500)
    back = []
    for tenth in range(300):
        lane.claimed(500, lane.generation, tenth / 10)
        lane.heed(300, tenth / 10)
        if lane.reached == 299:
            back.append(tenth / 10)
    assert 2 <= len(back) <= 8
    pauses = [b - a for a, b in itertools.pairwise(back)]
    assert sorted(pauses) == pauses


def test_a_straggler_beyond_the_floor_is_no_news() -> None:
    lane = Lane(1, "q", 0, "n", 500)
    lane.heed(501, 1.0)
    lane.heed(None, 1.0)
    assert 500 == lane.reached


def test_a_log_that_went_back_starts_the_lane_again() -> None:
    lanes = _lanes((1, 0, "n"))
    lane = lanes.get(1)
    assert lane is not None
    lane.claimed(900, lane.generation, 1.0)
    lanes.update([(1, "q", 0, "n", 40, None, False)], 100)
    assert 40 == lane.reached


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 400)), max_size=60))
def test_the_floor_is_never_beyond_what_was_claimed_and_never_below_its_start(steps: list[tuple[float, int]]) -> None:
    lane = Lane(1, "q", 0, "n", 7)
    now, highest = 0.0, 7
    for pause, more in steps:
        now += pause
        highest += more
        lane.claimed(highest, lane.generation, now)
        assert 7 <= lane.floor(now) <= highest == lane.reached
