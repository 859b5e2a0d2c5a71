"""The job store as a source of work: what to claim, what to hand in, and what is known of both.

The channels (see channel.py) share this state. Everything here happens on the event loop; nothing is awaited between
a decision and its note, so no lock is needed.

What each crash leaves behind:
  killed before a claim commits   nothing happened
  killed after                    the ledger row and the lease: the reapers give the jobs to others
  killed before a finish commits  the job runs again: at least once
  the answer to a finish is lost  the finish is sent again; a position that is done under our own incarnation is done
  the answer to a claim is lost   a new incarnation; the old one is retired
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from smena import telemetry
from smena._worker import outcome
from smena._worker.claimed import Claim, ClaimedJob
from smena._worker.lanes import Lane, Lanes
from smena._worker.results import Results
from smena._worker.slots import Slots

BATCH = 500
# Jobs claimed ahead are bounded by what the slots finish in this time, so that slow jobs are never hoarded.
_AHEAD_SECONDS = 0.1
_AHEAD_MOST = 1_000
_PEEK_EVERY = 0.05
_ALONE_IN_A_ROW = 10


class JobSource:
    """Decides what the channels do next."""

    def __init__(self, slots: Slots, results: Results, lanes: Lanes, incarnation: int) -> None:
        self.slots = slots
        self.results = results
        self.lanes = lanes
        self.incarnation = incarnation
        self.open = True
        self.registered = True
        self.in_flight: dict[int, int] = {}
        self.forgotten: list[Claim] = []
        self.head = 0
        self.seen = 0
        self.claimed = 0
        self.quiet_since: float | None = None
        self._sleepers: list[asyncio.Future[None]] = []
        self._peeked_at = 0.0
        self._peek_due = True
        self._quick_until = 0.0
        self._quick_pause = 0.0
        self._rate = 0.0
        self._rate_at = time.monotonic()
        self._rate_finished = 0
        self._oldest_result: float | None = None
        self._alone: ClaimedJob | None = None
        self._alone_in_a_row = 0

    # Waiting and waking

    def stir(self) -> None:
        """Wakes one channel to look whether there is something to do."""
        while self._sleepers:
            future = self._sleepers.pop()
            if not future.done():
                future.set_result(None)
                return

    def stir_all(self) -> None:
        for _ in range(len(self._sleepers)):
            self.stir()

    async def sleep(self, seconds: float | None) -> None:
        """A channel waits here until it is stirred, or for so long."""
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append(future)
        handle = None
        if seconds is not None:
            handle = asyncio.get_running_loop().call_later(seconds, _wake, future)
        try:
            await future
        finally:
            if handle is not None:
                handle.cancel()
            if future in self._sleepers:
                self._sleepers.remove(future)

    def head_moved(self, head: int) -> None:
        """Positions were drawn. They may commit a little later, so the look is repeated, ever more slowly."""
        if head != self.head:
            self.head = head
            self._quick_until = time.monotonic() + 1.0
            self._quick_pause = 0.002
            self.look()

    def look(self) -> None:
        """Something may be ready: look at the lanes at the next turn."""
        self._peek_due = True
        self.stir()

    # Deciding

    @property
    def claiming(self) -> bool:
        """The worker is not stopping, and its present incarnation is in the database."""
        return self.open and self.registered

    @property
    def idle(self) -> bool:
        """Nothing is held, nothing waits to be handed in, nothing was found at the last look."""
        return (
            self.slots.held == 0
            and self.results.all_known
            and not self.in_flight
            and self.lanes.next() is None
            and (self.lanes.suspects() is None)
        )

    @property
    def capacity(self) -> int:
        now = time.monotonic()
        passed = now - self._rate_at
        if passed >= 0.05:
            rate = (self.slots.finished - self._rate_finished) / passed
            self._rate = rate if rate < self._rate else (self._rate + rate) / 2
            self._rate_at, self._rate_finished = now, self.slots.finished
        return self.slots.concurrency + min(int(self._rate * _AHEAD_SECONDS), _AHEAD_MOST)

    def room(self) -> int:
        """How many jobs may be claimed now."""
        if not self.claiming or self._alone is not None:
            return 0
        return max(0, self.capacity - self.slots.held - sum(self.in_flight.values()))

    def peek_due(self, now: float) -> bool:
        if not self.claiming or not self.lanes.known:
            return False
        return self._peek_due or (now - self._peeked_at >= _PEEK_EVERY and self.lanes.next() is not None)

    def peek_sent(self, now: float) -> None:
        self._peek_due = False
        self._peeked_at = now

    def peeked(self, ready: Iterable[int]) -> None:
        self.lanes.found(ready)
        if self.lanes.next() is not None or self.lanes.suspects() is not None:
            self._quick_pause = 0.002

    def idle_pause(self, now: float) -> float:
        """How long an idle channel may sleep before it looks again by itself."""
        if now < self._quick_until:
            self._quick_pause = min(self._quick_pause * 2, 0.25)
            return self._quick_pause
        return 1.0

    def expect_look(self) -> None:
        self._peek_due = True

    def choose(self) -> tuple[Lane, int] | None:
        """The lane to claim from now and how many jobs; None when there is no room or nothing to claim."""
        suspects = self.lanes.suspects()
        if self._alone_in_a_row >= _ALONE_IN_A_ROW and self.lanes.next() is None:
            self._alone_in_a_row = 0
        if suspects is not None and self.claiming and self._alone_in_a_row < _ALONE_IN_A_ROW:
            # A suspect runs alone: first everything here has to end and be handed in.
            if self.slots.held == 0 and not self.in_flight and self.results.all_known:
                return suspects, 1
            return None
        lane = self.lanes.next()
        room = self.room()
        if lane is None or room == 0:
            return None
        return lane, min(room, BATCH)

    def worth_it(self, n: int) -> bool:
        """Whether to claim n jobs now rather than wait for more room."""
        return n >= BATCH // 2 or n * 2 >= self.slots.concurrency or not self.slots.waiting

    def results_due(self, now: float) -> float | None:
        """Seconds until the waiting results should be handed in; None when there are none."""
        count = len(self.results)
        if count == 0:
            self._oldest_result = None
            return None
        if self._oldest_result is None:
            self._oldest_result = now
        if count >= BATCH // 2 or self.slots.running == 0:
            return 0.0
        return max(0.0, self._oldest_result + 0.01 - now)

    def results_taken(self) -> None:
        self._oldest_result = None

    # Noting what happened

    def sent(self, incarnation: int, n: int) -> None:
        self.in_flight[incarnation] = self.in_flight.get(incarnation, 0) + n

    def answered(self, incarnation: int, n: int) -> None:
        left = self.in_flight[incarnation] - n
        if left:
            self.in_flight[incarnation] = left
        else:
            del self.in_flight[incarnation]

    def took(self, lane: Lane, jobs: list[ClaimedJob], wanted: int) -> None:
        """A claim came back."""
        if len(jobs) < wanted:
            lane.ready = False
            self._peek_due = self._peek_due or bool(jobs)
        if not jobs:
            return
        self.claimed += len(jobs)
        if lane.kind == "s":
            self._alone = jobs[0]
            self._alone_in_a_row += 1
        else:
            self._alone_in_a_row = 0
        if lane.paused or not self.claiming:
            for job in jobs:
                self.results.settle(job, outcome.handed_back(job))
            self.stir()
        else:
            self.slots.add(jobs)

    def ended(self, job: ClaimedJob) -> None:
        """The database knows the outcome of this job, or that it is not ours any more."""
        self.results.known(job)
        claim = job.claim
        claim.left -= 1
        if claim.left == 0:
            self.forgotten.append(claim)
        if job is self._alone:
            self._alone = None
            self._peek_due = True

    def lost(self, job: ClaimedJob) -> None:
        telemetry.emit("job.lost_token", job=job.id, task=job.task, token=job.pos)
        self.ended(job)

    def hand_back_waiting(self, queues: set[str] | None = None) -> int:
        """Gives back what was claimed and not started: of some queues, or everything."""
        kept = []
        count = 0
        for job in self.slots.waiting:
            lane = self.lanes.get(job.claim.lane)
            if queues is None or (lane is not None and lane.queue in queues):
                self.results.settle(job, outcome.handed_back(job))
                count += 1
            else:
                kept.append(job)
        self.slots.waiting.clear()
        self.slots.waiting.extend(kept)
        if count:
            self.stir()
        return count

    def known(self, incarnation: int) -> list[int]:
        """Positions of this incarnation whose jobs are in this process."""
        return [job.pos for job in [*self.slots.jobs(), *self.results.jobs()] if job.claim.incarnation == incarnation]


def _wake(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
