"""How finished jobs are put together for one statement."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from smena._worker.claimed import Claim, ClaimedJob
from smena._worker.results import DoneRange, Results

CLAIMS = {(i, lane): Claim(i, lane, 10**6, 1) for i in (1, 2) for lane in (1, 2)}


def _job(pos: int, incarnation: int = 1, lane: int = 1) -> ClaimedJob:
    return ClaimedJob(CLAIMS[incarnation, lane], pos, pos, 1, 5, "task", "{}", 0, None)


def _told(done: DoneRange) -> dict[tuple[int, int, int], object]:
    """What the statement would do: the positions marked in the map, each with its result."""
    results = json.loads(done.results) if done.results else {}
    return {(done.incarnation, done.lane, done.lo + n): results.get(str(n)) for n, mark in enumerate(done.map) if mark}


def test_a_range_marks_its_jobs_and_nothing_in_between() -> None:
    done = DoneRange([(_job(10), None), (_job(13), '"x"')])
    assert (10, 13, b"\1\0\0\1", '{"3":"x"}') == (done.lo, done.hi, done.map, done.results)


def test_no_result_costs_no_document() -> None:
    assert DoneRange([(_job(10), None)]).results is None


def test_jobs_far_apart_are_told_in_ranges_of_their_own() -> None:
    results = Results()
    for pos in (5, 6, 1_000_000):
        results.done(_job(pos), None)
    assert [(5, 6), (1_000_000, 1_000_000)] == [(r.lo, r.hi) for r in results.take_done()]


def test_what_was_put_back_is_taken_again() -> None:
    results = Results()
    results.done(_job(5), None)
    [taken] = results.take_done()
    assert 0 == len(results)
    results.again(taken)
    assert 1 == len(results)
    assert [taken] == results.take_done()


@given(
    st.sets(st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.integers(1, 30_000)), max_size=200),
    st.data(),
)
def test_every_done_job_is_told_once_under_its_own_fence(jobs: set[tuple[int, int, int]], data: st.DataObject) -> None:
    results = Results()
    expected = {}
    for place in data.draw(st.permutations(sorted(jobs))):
        incarnation, lane, pos = place
        expected[place] = pos if pos % 3 == 0 else None
        results.done(_job(pos, incarnation, lane), str(pos) if pos % 3 == 0 else None)
    told: dict[tuple[int, int, int], object] = {}
    for done in results.take_done():
        assert len(done.map) <= 8_192
        part = _told(done)
        assert not part.keys() & told.keys()
        told |= part
    assert expected == told
