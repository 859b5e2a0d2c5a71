"""A channel: one connection that hands results in and claims jobs, in turns.

Two channels in a process overlap the commit of one with the work of the other. A turn is at most one statement of each
kind: rows that were settled otherwise than done, ordered jobs, ranges of done jobs, the last of which is fused with the
next claim.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from smena import telemetry
from smena._ops.workers import lock_key
from smena._sql import statement
from smena._worker.claimed import Claim, ClaimedJob
from smena._worker.lanes import Lane
from smena._worker.link import GONE
from smena._worker.results import DoneRange
from smena._worker.source import JobSource

_REPEATABLE = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)


class Channel:
    """Runs until the source stops claiming and everything is handed in."""

    def __init__(
        self,
        number: int,
        source: JobSource,
        connect: Callable[[], Any],
        schema: str,
        worker_name: str,
        broken: Callable[[], None],
    ) -> None:
        self.number = number
        self._source = source
        self._connect = connect
        self._schema = schema
        self._worker_name = worker_name
        self._broken = broken
        self._claim = _Prepared("jobs/claim", schema)
        self._settle = _Prepared("jobs/settle", schema)
        self._ordered = _Prepared("jobs/finish_ordered", schema)
        self._recheck = _Prepared("jobs/recheck", schema)
        self._peek = _Prepared("jobs/peek", schema)
        self._unsure: set[int] = set()

    async def run(self) -> None:
        """Serves over one connection after another, for as long as the process lives."""
        pause = 0.1
        while True:
            connection = None
            try:
                connection = await self._connect()
                async with psycopg.AsyncRawCursor(connection) as cursor:
                    while True:
                        await connection.plan_anew()
                        await self._turn(cursor)
                        pause = 0.1
            except (*GONE, psycopg.IntegrityError) as error:
                # Integrity: a position is drawn twice, because the sequence is behind the log. The floor duty moves it.
                telemetry.emit("database.lost", part=f"channel {self.number}", error=str(error).strip())
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 2.0)
            finally:
                if connection is not None:
                    await connection.close()

    async def _turn(self, cursor: psycopg.AsyncRawCursor[Any]) -> None:
        source = self._source
        now = time.monotonic()
        if source.peek_due(now):
            lanes, floors = source.lanes.floors()
            source.peek_sent(now)
            source.peeked([row[0] for row in await self._peek(cursor, {"lanes": lanes, "floors": floors})])
        chosen = source.choose()
        due = source.results_due(now)
        if chosen is not None and not source.worth_it(chosen[1]):
            due, chosen = min(0.01, due if due is not None else 0.01), None if due != 0.0 else chosen
        if chosen is None and due != 0.0:
            await self._rest(due, now)
            return
        if due is not None:
            source.results_taken()
            await self._hand_in_settled(cursor)
            await self._hand_in_ordered(cursor)
        ranges = source.results.take_done()
        await self._exchange_all(cursor, ranges[:-1], ranges[-1:])
        if ranges or chosen is not None:
            lane, wanted = chosen if chosen is not None else (None, 0)
            await self._exchange(cursor, ranges[-1] if ranges else None, lane, wanted)

    async def _rest(self, due: float | None, now: float) -> None:
        source = self._source
        if due is None and self.number == 0 and source.lanes.next() is None:
            due = source.idle_pause(now)
            await source.sleep(due)
            source.expect_look()
            return
        await source.sleep(due)

    async def _exchange_all(
        self, cursor: psycopg.AsyncRawCursor[Any], ranges: list[DoneRange], later: Sequence[DoneRange] = ()
    ) -> None:
        """Hands ranges in, one by one. When it fails, what was not sent is put back, and so are those for `later`."""
        for n, done in enumerate(ranges):
            try:
                await self._exchange(cursor, done, None, 0)
            except BaseException:
                for left in (*ranges[n + 1 :], *later):
                    self._source.results.again(left)
                raise

    async def _exchange(
        self, cursor: psycopg.AsyncRawCursor[Any], done: DoneRange | None, lane: Lane | None, wanted: int
    ) -> None:
        """Hands one range in and claims `wanted` jobs of `lane`, in one statement."""
        source = self._source
        incarnation = done.incarnation if done is not None else source.incarnation
        if done is not None and lane is not None and incarnation != source.incarnation:
            await self._exchange(cursor, done, None, 0)
            await self._exchange(cursor, None, lane, wanted)
            return
        generation = lane.generation if lane is not None else 0
        now = time.monotonic()
        parameters = {
            "incarnation": incarnation,
            "done_lane": done.lane if done is not None else 0,
            "lo": done.lo if done is not None else 1,
            "hi": done.hi if done is not None else 0,
            "map": done.map if done is not None else b"",
            "results": done.results if done is not None else None,
            "lane": lane.id if lane is not None else 0,
            "floor": lane.floor(now) if lane is not None else 0,
            "n": wanted,
            **lock_key(incarnation),
        }
        if wanted:
            source.sent(incarnation, wanted)
        try:
            rows = await self._claim(cursor, parameters)
        except psycopg.DataError:
            if wanted:
                source.answered(incarnation, wanted)
            await self._isolate(cursor, done)
            return
        except BaseException as error:
            if wanted:
                source.answered(incarnation, wanted)
            if done is not None:
                self._unsure.add(id(done))
                source.results.again(done)
            if isinstance(error, _REPEATABLE):
                if lane is not None:
                    source.look()
                return
            if wanted:
                self._broken()
            raise
        if wanted and lane is not None:
            source.answered(incarnation, wanted)
            self._take(lane, incarnation, wanted, generation, rows, now)
        if done is not None:
            await self._check(cursor, done, rows[0][0])

    def _take(self, lane: Lane, incarnation: int, wanted: int, generation: int, rows: list[Any], now: float) -> None:
        found = [row for row in rows if row[1] is not None]
        if not found:
            self._source.took(lane, [], wanted)
            return
        found.sort(key=_position)
        highest = found[-1][1]
        claim = Claim(incarnation, lane.id, highest, len(found))
        jobs = [
            ClaimedJob(claim, pos, id, attempt, most, task, args, created, json.loads(rest) if rest else None)
            for _, pos, id, attempt, most, task, args, created, rest in found
        ]
        lane.claimed(highest, generation, now)
        if highest > self._source.seen:
            self._source.seen = highest
        self._source.took(lane, jobs, wanted)

    async def _check(self, cursor: psycopg.AsyncRawCursor[Any], done: DoneRange, count: int) -> None:
        """All of a range is done, or we find out which of its jobs were not ours any more."""
        source = self._source
        unsure = id(done) in self._unsure
        self._unsure.discard(id(done))
        if count == len(done.jobs):
            telemetry.emit("jobs.finished", count=count)
            for job in done.jobs:
                source.ended(job)
            return
        values = {"incarnation": done.incarnation, "lane": done.lane, "positions": [job.pos for job in done.jobs]}
        try:
            rows = await self._recheck(cursor, values)
        except BaseException:
            self._unsure.add(id(done))
            source.results.again(done)
            raise
        ours = {pos for pos, state, mine in rows if state == "d" and mine}
        telemetry.emit("jobs.finished", count=len(ours) if unsure else count)
        for job in done.jobs:
            if job.pos in ours:
                source.ended(job)
            else:
                source.lost(job)

    async def _isolate(self, cursor: psycopg.AsyncRawCursor[Any], done: DoneRange | None) -> None:
        """One result of a range cannot be stored: hand them in one by one, that one without its result."""
        if done is None:
            return
        if len(done.jobs) == 1:
            job = done.jobs[0]
            telemetry.emit("job.result_refused", job=job.id, task=job.task, error="PostgreSQL refused the result")
            await self._exchange(cursor, DoneRange([(job, None)]), None, 0)
            return
        results = json.loads(done.results) if done.results else {}
        values = [results.get(str(job.pos - done.lo)) for job in done.jobs]
        singles = [
            DoneRange([(job, None if value is None else json.dumps(value))])
            for job, value in zip(done.jobs, values, strict=True)
        ]
        await self._exchange_all(cursor, singles)

    async def _hand_in_settled(self, cursor: psycopg.AsyncRawCursor[Any]) -> None:
        settled = self._source.results.take_settled()
        if not settled:
            return
        try:
            by_incarnation: dict[int, list[tuple[ClaimedJob, dict[str, Any]]]] = {}
            for job, row in settled:
                by_incarnation.setdefault(job.claim.incarnation, []).append((job, row))
            while by_incarnation:
                incarnation, entries = next(iter(by_incarnation.items()))
                document = json.dumps(
                    [{"lane": job.claim.lane, "pos": job.pos, **row} for job, row in entries], ensure_ascii=False
                )
                rows = await self._settle(
                    cursor, {"rows": document, "incarnation": incarnation, "worker_name": self._worker_name}
                )
                del by_incarnation[incarnation]
                written = {row[0] for row in rows}
                for job, _ in entries:
                    (self._source.ended if job.pos in written else self._source.lost)(job)
        except BaseException as error:
            for entries in by_incarnation.values():
                for job, row in entries:
                    self._source.results.settle(job, row)
            if isinstance(error, psycopg.DataError):
                await self._settle_without_detail(cursor)
            elif not isinstance(error, _REPEATABLE):
                raise

    async def _settle_without_detail(self, cursor: psycopg.AsyncRawCursor[Any]) -> None:
        """PostgreSQL refused what is told of one of the outcomes. The outcomes count more than what is told."""
        for job, row in self._source.results.take_settled():
            telemetry.emit("job.result_refused", job=job.id, task=job.task, error="PostgreSQL refused the detail")
            self._source.results.settle(job, {**row, "detail": {"message": "the detail could not be stored"}})
        await self._hand_in_settled(cursor)

    async def _hand_in_ordered(self, cursor: psycopg.AsyncRawCursor[Any]) -> None:
        ordered = self._source.results.take_ordered()
        if not ordered:
            return
        try:
            while ordered:
                incarnation = ordered[0][0].claim.incarnation
                part = [entry for entry in ordered if entry[0].claim.incarnation == incarnation]
                document = (
                    "["
                    + ",".join(
                        f'{{"lane":{job.claim.lane},"pos":{job.pos},"result":{result or "null"}}}'
                        for job, result in part
                    )
                    + "]"
                )
                rows = await self._ordered(cursor, {"rows": document, "incarnation": incarnation})
                ordered = [entry for entry in ordered if entry[0].claim.incarnation != incarnation]
                written = {row[0] for row in rows}
                telemetry.emit("jobs.finished", count=len(written))
                for job, _ in part:
                    (self._source.ended if job.pos in written else self._source.lost)(job)
        except BaseException as error:
            for job, result in ordered:
                self._source.results.done(job, result)
            if not isinstance(error, _REPEATABLE):
                raise


class _Prepared:
    """A statement that the server plans once per connection."""

    def __init__(self, name: str, schema: str) -> None:
        found = statement(name, schema)
        self._sql = found.numbered.encode()
        self._names = found.names

    async def __call__(self, cursor: psycopg.AsyncRawCursor[Any], parameters: dict[str, Any]) -> list[Any]:
        await cursor.execute(self._sql, [parameters[name] for name in self._names], prepare=True)
        return await cursor.fetchall()


def _position(row: Any) -> int:
    return int(row[1])
