"""The floor: below it a claim need not look, however much finished work lies there.

Positions are drawn before they are committed, so a job can appear below a position that was claimed already. The rule
by which none is lost, with its invariants:

I1  Whoever draws a position holds RowExclusiveLock on smena.job from before the draw until its transaction has ended:
    nextval stands inside the INSERT or UPDATE that uses it, and the sequence has CACHE 1.
I2  A job becomes ready only at a fresh position; only a claim that was rolled back makes an old one ready again.
I3  A *window* is the stretch between two heads of the sequence, with the set of transactions that held the lock after
    the later head was read (head first, then holders). When all of the set have ended, every position of the window is
    settled: committed and visible to later snapshots, or never to come.
I4  A window still open after some seconds is turned into its *holes*, the stretches with no visible row. What is
    visible in it needs no more waiting; the holes stay in care until the set has ended. A ready row found in a hole is
    lifted to a fresh position, so nobody has to look back for it.
I5  The floor of a lane never passes a ready row, nor an unsettled position outside a hole in care. So it never passes
    a claim on its way either: until that commits, its rows still look ready.
I6  A ready row that stops the floor in two passes is reported as a straggler; a worker that was beyond it goes back.
    A false report costs a look.
I7  Lane 0 keeps the position below which everything is settled and no hole is in care. A new holder of the duty begins
    there, with one window up to the present head; it inherits nothing else. So does a holder whose connection is new:
    it may look at a promoted standby, which lacks the last claims.
I8  The sequence is never behind the log: its positions, the ids of parked jobs, the floors. If it is, because of a
    restore or a switchover, it is moved, and every floor starts again at 0. Lane 0's straggler counts how often. A
    holder that remembers another count begins anew, and can publish nothing before it has.

Two holders at once are harmless: what one publishes stays true, because a settled position stays settled, and I8 sees
to the one case in which it does not. A prepared transaction changes its name in pg_locks when the server restarts, so
every prepared one counts as a member of every set.

Not used: xmin and xmax arithmetic. A position may be drawn before its transaction has an xid, and a snapshot's xmax is
the last *completed* xid plus one, below that of a transaction still running. Both lose jobs; tests show it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from smena import telemetry
from smena._drivers.psycopg import aexecute
from smena._maintenance.duty import Connection
from smena._ops.operation import Query

EVERY = 0.5
HOLES_AFTER = 2.0


@dataclass(slots=True)
class Window:
    """Positions lo+1 … hi, and the transactions that may still commit some of them."""

    lo: int
    hi: int
    holders: set[str]
    since: float


@dataclass(slots=True)
class Holes:
    """Stretches of an old window in which nothing was visible, in care until `holders` have ended."""

    stretches: list[tuple[int, int]]
    holders: set[str]
    changed: bool = field(default=False)


class Floor:
    """The floor duty. Its state is in memory; lane 0 and the floors are what a successor needs."""

    name = "floor"

    def __init__(self, schema: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._schema = schema
        self._clock = clock
        self._floors: dict[int, int] = {}
        self._stuck: dict[int, int] = {}
        self._windows: list[Window] = []
        self._holes: list[Holes] = []
        self._settled = 0
        self._head: int | None = None
        self._rewinds: int | None = None
        self._ticked = float("-inf")
        self._connection: Connection | None = None

    async def tick(self, connection: Connection) -> float:
        """One pass."""
        now = self._clock()
        if now - self._ticked > 10 * EVERY or connection is not self._connection:
            self._head = None  # somebody else may have had the duty meanwhile, or the server is another: begin anew
        self._ticked = now
        self._connection = connection
        before, head = await self._follow(connection)
        holders = {row[0] for row in await self._query(connection, "floor/holders")}
        prepared = {name for name in holders if name.startswith("-1/")}
        if head > before:
            self._windows.append(Window(before, head, set(holders), now))
        self._head = head
        await self._settle(connection, holders, prepared, now)
        await self._care_for_holes(connection, holders, prepared)
        await self._walk(connection)
        return EVERY

    async def _follow(self, connection: Connection) -> tuple[int, int]:
        """Reads lanes and head, and begins anew where memory does not hold; returns the head before and the head."""
        while True:
            if self._head is None:
                await rewind(connection, self._schema)
            rows = await self._query(connection, "floor/floors")
            published = {lane: floor for lane, floor, _ in rows}
            rewinds = next(count for lane, _, count in rows if lane == 0)
            if self._head is None or rewinds != self._rewinds:
                # Everything beyond lane 0's floor is one window, and no floor may lie beyond that.
                self._rewinds = rewinds
                self._settled = self._head = published[0]
                self._windows, self._holes, self._stuck = [], [], {}
                self._floors = {lane: min(floor, self._settled) for lane, floor in published.items() if lane}
            for lane in published:
                if lane and lane not in self._floors:
                    self._floors[lane] = 0
            last, called = (await self._query(connection, "floor/head"))[0]
            head = int(last) if called else 0
            if head >= self._head:
                return self._head, head
            # The sequence went back. It is moved before anything is drawn twice, and every floor starts again.
            await rewind(connection, self._schema, self._head)
            self._head = None

    async def _settle(self, connection: Connection, holders: set[str], prepared: set[str], now: float) -> None:
        """Resolves windows whose transactions have ended, and turns old ones into their holes."""
        open: list[Window] = []
        for window in self._windows:
            window.holders = (window.holders & holders) | prepared
            if window.holders and now - window.since > HOLES_AFTER and not open:
                stretches = await self._missing(connection, [(window.lo + 1, window.hi)])
                if self._holes and self._holes[-1].holders == window.holders and not self._holes[-1].changed:
                    self._holes[-1].stretches += stretches
                elif stretches:
                    self._holes.append(Holes(stretches, window.holders))
            elif window.holders or open:
                open.append(window)
                continue
            self._settled = window.hi
        self._windows = open

    async def _care_for_holes(self, connection: Connection, holders: set[str], prepared: set[str]) -> None:
        """Looks into holes when a transaction that may have filled them has ended."""
        kept = []
        for holes in self._holes:
            still = (holes.holders & holders) | prepared
            if still != holes.holders:
                holes.changed = True
            holes.holders = still
            if holes.changed:
                await self._lift(connection, holes)
                # What came between the lift and this look is ready, and a ready row stays in care.
                holes.stretches = await self._missing(connection, holes.stretches, ready_too=True)
                # Somebody may hold such a row locked just now: come back for it.
                holes.changed = bool(holes.stretches) and await self._ready_in(connection, holes)
            if holes.stretches and (holes.holders or holes.changed):
                kept.append(holes)
        self._holes = kept

    async def _lift(self, connection: Connection, holes: Holes) -> None:
        page = 1000
        while (await self._query(connection, "floor/lift", page=page, **_bounds(holes.stretches)))[0][0]:
            pass

    async def _ready_in(self, connection: Connection, holes: Holes) -> bool:
        return bool((await self._query(connection, "floor/ready_in", **_bounds(holes.stretches)))[0][0])

    async def _walk(self, connection: Connection) -> None:
        """Moves each lane's floor up to its first ready row, or to the settled end."""
        lanes = sorted(self._floors)
        values = {"lanes": lanes, "floors": [self._floors[lane] for lane in lanes], "settled": self._settled}
        stragglers: dict[int, int | None] = {}
        stuck: dict[int, int] = {}
        for lane, ready in await self._query(connection, "floor/walk", **values):
            self._floors[lane] = max(self._floors[lane], self._settled if ready is None else ready - 1)
            if ready is not None:
                stuck[lane] = ready
                stragglers[lane] = ready if self._stuck.get(lane) == ready else None
        self._stuck = stuck
        sealed = min([self._settled, *(holes.stretches[0][0] - 1 for holes in self._holes)])
        await self._query(
            connection,
            "floor/publish",
            lanes=[0, *lanes],
            floors=[sealed, *(self._floors[lane] for lane in lanes)],
            stragglers=[self._rewinds, *(stragglers.get(lane) for lane in lanes)],
            rewinds=self._rewinds,
        )

    async def _missing(
        self, connection: Connection, stretches: list[tuple[int, int]], *, ready_too: bool = False
    ) -> list[tuple[int, int]]:
        rows = await self._query(connection, "floor/missing", ready_too=ready_too, **_bounds(stretches))
        return [(first, last) for first, last in rows]

    async def _query(self, connection: Connection, name: str, **values: Any) -> Any:
        return await aexecute(connection, Query(name, values), self._schema)


def _bounds(stretches: list[tuple[int, int]]) -> dict[str, list[int]]:
    return {"los": [lo for lo, _ in stretches], "his": [hi for _, hi in stretches]}


async def rewind(connection: Connection, schema: str, least: int = 0) -> int:
    """Moves the sequence beyond every position in the log if it is not; returns the head.

    Held against all drawers of positions, because setval must never go backwards under them, and against floor passes.
    """
    head, target = await _positions(connection, schema, least)
    if head >= target:
        return head  # the usual case, and no lock is taken for it
    while True:
        try:
            return await _rewind(connection, schema, least)
        except psycopg.errors.LockNotAvailable:
            # A long enqueuer is in the way: nobody shall queue behind us for long.
            await asyncio.sleep(random.uniform(0.2, 1.0))


async def _rewind(connection: Connection, schema: str, least: int) -> int:
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '1s'")
        await aexecute(connection, Query("floor/lock_log"), schema)
        was, target = await _positions(connection, schema, least)
        if was < target:
            await aexecute(connection, Query("floor/move_sequence", {"position": target}), schema)
        # Also when the drawers came past the target meanwhile: some drew below it.
        await aexecute(connection, Query("floor/restart"), schema)
    if was < target:
        telemetry.emit("position_rewound", was=was, now=target)
    return max(was, target)


async def _positions(connection: Connection, schema: str, least: int) -> tuple[int, int]:
    """The head of the sequence, and where it has to be at least."""
    last, called = (await aexecute(connection, Query("floor/head"), schema))[0]
    highest = (await aexecute(connection, Query("floor/highest"), schema))[0][0]
    return int(last) if called else 0, max(highest, least)
