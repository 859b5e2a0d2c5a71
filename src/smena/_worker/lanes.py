"""The lanes of a worker's queues, and where in each the next claim starts.

The worker's own floor of a lane is a hint in memory: the highest position it claimed. It is raised only by a claim
that was sent in the lane's present generation, and it falls when the floor duty reports a straggler below it (a ready
job that was passed over: its claim was rolled back, or its enqueuer committed late). What committed out of order within
the last second is found by looking back, without any report.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

# Looking back costs the walk over that many finished rows; beyond it the straggler report is the way.
_LOOK_BACK_POSITIONS = 1_000
_LOOK_BACK_SECONDS = 1.0


class Lane:
    """One lane: new work (n), returned work (r) or suspects (s) of a queue at a priority."""

    def __init__(self, id: int, queue: str, priority: int, kind: str, floor: int) -> None:
        self.id = id
        self.queue = queue
        self.priority = priority
        self.kind = kind
        self.reached = floor
        self.generation = 0
        self.paused = False
        self.ready = False
        self._past: deque[tuple[float, int]] = deque()
        self._straggler: int | None = None
        self._patience = 0.0
        self._went_back = 0.0

    def floor(self, now: float) -> int:
        """Where the next claim starts: beyond this position."""
        past = self._past
        while past and past[0][0] <= now - _LOOK_BACK_SECONDS:
            past.popleft()
        for _, position in past:
            if self.reached - position <= _LOOK_BACK_POSITIONS:
                return position
        return self.reached

    def claimed(self, highest: int, generation: int, now: float) -> None:
        """A claim sent in `generation` came back with `highest` as its last position."""
        if generation == self.generation and highest > self.reached:
            if not self._past or now - self._past[-1][0] >= 0.05:
                self._past.append((now, self.reached))
            self.reached = highest

    def restart(self, floor: int) -> None:
        """Starts again at `floor`: after a lost connection, or when the log was rewound."""
        self.reached = floor
        self.generation += 1
        self._past.clear()

    def heed(self, straggler: int | None, now: float) -> None:
        """Goes back to a reported straggler. Ever more seldom to the same one: it may be locked by a person."""
        if straggler is None or straggler > self.reached:
            return
        if straggler != self._straggler:
            self._straggler, self._patience = straggler, 0.5
        elif now - self._went_back < self._patience:
            return
        self._went_back = now
        self._patience = min(self._patience * 2, 60.0)
        self.restart(straggler - 1)


class Lanes:
    """All lanes of the worker's queues, in the order in which they are served."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: dict[int, Lane] = {}
        self._serving: list[Lane] = []
        self._turn = 0
        self.known = False

    def update(self, rows: Iterable[tuple[int, str, int, str, int | None, int | None, bool]], head: int) -> bool:
        """Takes in what a beat read. True when a lane is new or goes on after a pause."""
        now = self._clock()
        news = False
        seen = set()
        for id, queue, priority, kind, floor, straggler, paused in rows:
            seen.add(id)
            lane = self._lanes.get(id)
            if lane is None:
                lane = self._lanes[id] = Lane(id, queue, priority, kind, floor or 0)
                news = True
            if lane.reached > head:
                lane.restart(floor or 0)
            lane.heed(straggler, now)
            news = news or (lane.paused and not paused)
            lane.paused = paused
        self._lanes = {id: lane for id, lane in self._lanes.items() if id in seen}
        self._serving = sorted(self._lanes.values(), key=lambda lane: (-lane.priority, lane.kind != "r", lane.id))
        self.known = True
        return news

    def get(self, id: int) -> Lane | None:
        return self._lanes.get(id)

    def floors(self) -> tuple[list[int], list[int]]:
        """Lane ids and where a look for ready work starts in each, paused ones left out."""
        now = self._clock()
        open = [lane for lane in self._serving if not lane.paused]
        return [lane.id for lane in open], [lane.floor(now) for lane in open]

    def found(self, ready: Iterable[int]) -> None:
        """Notes which lanes have ready work."""
        ready = set(ready)
        for lane in self._serving:
            lane.ready = lane.id in ready

    def suspects(self) -> Lane | None:
        """A lane with suspects waiting, if any."""
        return next((lane for lane in self._serving if lane.ready and lane.kind == "s" and not lane.paused), None)

    def next(self) -> Lane | None:
        """The lane to claim from: the highest priority, returned work first.

        One claim in ten prefers new work of that priority, and one in twenty takes the lowest priority that has any,
        so that neither a flood of returned work nor a higher priority starves the rest for ever.
        """
        ready = [lane for lane in self._serving if lane.ready and lane.kind != "s" and not lane.paused]
        if not ready:
            return None
        self._turn += 1
        if self._turn % 20 == 0:
            return ready[-1]
        if self._turn % 10 == 0:
            return next((lane for lane in ready if lane.priority == ready[0].priority and lane.kind == "n"), ready[0])
        return ready[0]

    def paused_queues(self) -> set[str]:
        return {lane.queue for lane in self._serving if lane.paused}

    def restart(self) -> None:
        """After a lost connection nothing is known: each lane starts again at the published floor."""
        self._lanes.clear()
        self._serving.clear()
        self.known = False
