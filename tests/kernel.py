"""What the tests of the job store share: connections, enqueuers, claimers and floor passes, each step one await.

Nothing here happens by itself: a test says which step comes next, and time is a clock that the test moves.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest

from smena._drivers import arun
from smena._drivers.psycopg import aexecute
from smena._maintenance.floor import Floor
from smena._maintenance.reap import Reap
from smena._ops.jobs import NewJob, Order, enqueue
from smena._ops.operation import Query
from smena._ops.workers import lock_key
from smena._worker.incarnation import new_incarnation, register
from smena._worker.lanes import Lane, Lanes

SCHEMA = "smena"
Connection = psycopg.AsyncConnection[Any]


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test, and fails it if it leaves a task behind."""

    async def checked(*args: Any, **kwargs: Any) -> None:
        await test(*args, **kwargs)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(checked(*args, **kwargs))

    return run


def histories(usual: int) -> pytest.MarkDecorator:
    """Gives a test the `numbers` of its histories, in pieces of twenty that share a database.

    `SMENA_HISTORIES=7-7` runs history 7 alone, `SMENA_HISTORIES=5000` the first five thousand.
    """
    first, _, last = os.environ.get("SMENA_HISTORIES", str(usual)).rpartition("-")
    numbers = range(int(first or 0), int(last) + bool(first))
    pieces = [numbers[n : n + 20] for n in range(0, len(numbers), 20)]
    return pytest.mark.parametrize("numbers", pieces, ids=[f"{piece[0]}-{piece[-1]}" for piece in pieces])


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Held:
    """A job in a claimer's hands."""

    lane: int
    pos: int
    id: int
    attempt: int


class Kernel:
    """One store. `ask` runs a statement of the library by its name, on the main connection unless told."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = Clock()
        self._open: list[Connection] = []

    async def __aenter__(self) -> Self:
        self.main = await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open:
            await connection.close()

    async def connect(self, **options: str) -> Connection:
        words = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan", "jit": "off", **options}
        connection = await psycopg.AsyncConnection.connect(
            self.dsn,
            autocommit=True,
            prepare_threshold=1,
            options=" ".join(f"-c {name}={value}" for name, value in words.items()),
        )
        self._open.append(connection)
        return connection

    async def ask(self, name: str, connection: Connection | None = None, /, **values: Any) -> Any:
        return await aexecute(connection or self.main, Query(name, values), SCHEMA)

    async def rows(self, text: str, *values: Any, on: Connection | None = None) -> list[Any]:
        cursor = await (on or self.main).execute(text, values or None)  # type: ignore[call-overload]
        return await cursor.fetchall() if cursor.description else []

    async def value(self, text: str, *values: Any, on: Connection | None = None) -> Any:
        return (await self.rows(text, *values, on=on))[0][0]

    async def enqueue(
        self, n: int = 1, on: Connection | None = None, keys: Sequence[dict[str, str]] = (), **order: Any
    ) -> list[int]:
        """Enqueues n jobs, or one for each of `keys` (order_key=, unique_key=). Returns their ids."""
        jobs = [NewJob("{}", **each) for each in keys] or [NewJob("{}")] * n
        wish = Order(**{"task": "work", "queue": "q", "priority": 0, "max_attempts": 5} | order)
        return [each.id for each in await arun(enqueue(wish, jobs), on or self.main, SCHEMA)]

    async def claimer(self, lease: float = 30.0) -> Claimer:
        claimer = Claimer(self, await self.connect())
        await claimer.register(lease)
        return claimer

    async def state(self, id: int) -> str:
        return str(await self.value("select state from smena.jobs where id = %s", id))

    async def states(self, ids: Iterable[int]) -> list[str]:
        found = dict(await self.rows("select id, state from smena.jobs where id = any (%s)", list(ids)))
        return [found.get(id, "gone") for id in ids]

    async def until_blocked(self, connection: Connection) -> None:
        """Returns when the connection's statement waits for a lock."""
        while not await self.value(
            "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", connection.info.backend_pid
        ):
            await asyncio.sleep(0.002)

    async def terminate(self, connection: Connection) -> None:
        """Ends the connection's backend, and returns when its locks are gone."""
        pid = connection.info.backend_pid
        await self.rows("select pg_terminate_backend(%s)", pid)
        while await self.value("select exists (select from pg_locks where pid = %s)", pid):
            await asyncio.sleep(0.002)
        self._open.remove(connection)
        await connection.close()

    async def kill(self, claimer: Claimer) -> None:
        """The claimer's process is gone: its lease has run out."""
        await self.rows(
            "update smena.workers set claimed_until = clock_timestamp() - interval '1 s' where incarnation = %s",
            claimer.incarnation,
        )

    async def witness(self) -> int:
        """A worker that has renewed for ever and always will: who asks on its behalf may reap."""
        await self.rows(
            "insert into smena.workers (incarnation, name, host, pid, queues, concurrency, lease, renewed_at,"
            " unbroken_since, claimed_until) select 1, 'witness', '', 0, '{}', 1, 0.01, now + day, now - day, now + day"
            " from (select clock_timestamp() as now, interval '1 day' as day) t on conflict do nothing"
        )
        return 1

    async def reap(self, connection: Connection | None = None) -> None:
        witness = await self.witness()
        await Reap(SCHEMA, every=1.0, witness=lambda: witness).tick(connection or self.main)

    async def promote(self) -> int:
        """Promotes what is due, however late it was committed."""
        rows = await self.ask("duties/promote", floor="-infinity", page=1000)
        return int(rows[0][0])

    async def floors(self) -> dict[int, int]:
        """What the floor passes published; lane 0 is the whole log."""
        return {lane: floor for lane, floor, _ in await self.ask("floor/floors")}

    async def check_floor(self, *passes: Floor, unsettled: Iterable[int] = ()) -> None:
        """I5 and I7. `passes`: who has holes in care. `unsettled`: positions that open transactions have drawn."""
        published = await self.floors()
        care = [stretch for floor in passes for holes in floor._holes for stretch in holes.stretches]

        def neglected(pos: int) -> bool:
            return not any(lo <= pos <= hi for lo, hi in care)

        ready = await self.rows("select lane, pos from smena.job where state = 'r' and pos > 0")
        passed = [(lane, pos) for lane, pos in ready if pos <= published.get(lane, 0)]
        sealed = published[0]
        assert [] == [pos for _, pos in passed if neglected(pos)], "a floor passed a ready job that nobody has in care"
        assert [] == [pos for _, pos in passed if pos <= sealed], "a successor would not find a ready job"
        assert [] == [pos for pos in unsettled if pos <= sealed], "a successor would not wait for an open transaction"
        highest = max(published.values())
        assert [] == [pos for pos in unsettled if pos <= highest and neglected(pos)], "nobody looks after a late commit"

    async def passes(self, floor: Floor, n: int = 1, *, every: float = 0.5, on: Connection | None = None) -> None:
        """So many floor passes, half a second apart."""
        for _ in range(n):
            self.clock.now += every
            await floor.tick(on or self.main)


class Claimer:
    """A worker as the store sees it. It claims through its own lane floors, as the worker does, and in no other way."""

    def __init__(self, kernel: Kernel, connection: Connection) -> None:
        self.kernel = kernel
        self.connection = connection
        self.incarnation = new_incarnation()
        self.lanes = Lanes(kernel.clock)

    async def register(self, lease: float = 30.0) -> None:
        await register(
            self.connection,
            SCHEMA,
            incarnation=self.incarnation,
            name=f"w{self.incarnation}",
            queues=None,
            concurrency=10,
            lease=lease,
            release=None,
        )

    async def beat(self) -> None:
        """Reads the lanes, their published floors and the stragglers."""
        values = {"incarnation": self.incarnation, "incarnations": [], "maintain": False, "queues": None}
        seen = json.loads((await self.kernel.ask("workers/beat", self.connection, **values))[0][0])
        self.lanes.update(seen["lanes"], seen["head"])

    async def look(self) -> bool:
        """Is anything ready beyond our floors?"""
        lanes, floors = self.lanes.floors()
        found = await self.kernel.ask("jobs/peek", self.connection, lanes=lanes, floors=floors)
        self.lanes.found([row[0] for row in found])
        return bool(found)

    async def claim(self, n: int = 10, *, lane: Lane | None = None, note: bool = True) -> list[Held]:
        """Claims from the lane that is next, or a given one. `note`: its floor moves, unless the claim is undone."""
        lane = lane or self.lanes.suspects() or self.lanes.next()
        if lane is None:
            return []
        now = self.kernel.clock()
        generation = lane.generation
        held = await self.claim_from(lane.id, lane.floor(now), n)
        if held and note:
            lane.claimed(max(job.pos for job in held), generation, now)
        if len(held) < n:
            lane.ready = False
        return held

    async def claim_from(self, lane: int, floor: int = 0, n: int = 10) -> list[Held]:
        """The claim alone, from a given floor, past what the worker knows."""
        rows = await self._claim(lane=lane, floor=floor, n=n)
        return sorted((Held(lane, *row[1:4]) for row in rows if row[1] is not None), key=lambda job: job.pos)

    async def finish(self, jobs: Sequence[Held]) -> int:
        """Hands jobs in as done; returns how many were still ours."""
        count = 0
        for lane in {job.lane for job in jobs}:
            positions = {job.pos for job in jobs if job.lane == lane}
            lo, hi = min(positions), max(positions)
            marks = bytes(pos in positions for pos in range(lo, hi + 1))
            count += (await self._claim(done_lane=lane, lo=lo, hi=hi, map=marks))[0][0]
        return count

    async def finish_ordered(self, jobs: Sequence[Held]) -> int:
        rows = "[" + ",".join(f'{{"lane":{job.lane},"pos":{job.pos},"result":null}}' for job in jobs) + "]"
        values = {"rows": rows, "incarnation": self.incarnation}
        return len(await self.kernel.ask("jobs/finish_ordered", self.connection, **values))

    async def settle(self, jobs: Sequence[Held], to: str, **more: Any) -> int:
        """Writes another outcome: s(cheduled again), r(eady), f(ailed), u(nknown), c(ancelled)."""
        plain = {"to": to, "delay": 0.0, "back": to == "r", "head": to in "fc", "snooze": False, "unfit": False}
        plain |= {"outcome": {"s": "retried", "r": "handed_back"}.get(to, "failed"), "kind": None, "side": None}
        rows = [{"lane": job.lane, "pos": job.pos, **plain, **more} for job in jobs]
        values = {"rows": json.dumps(rows), "incarnation": self.incarnation, "worker_name": "w"}
        return len(await self.kernel.ask("jobs/settle", self.connection, **values))

    async def drain(self) -> list[int]:
        """Claims and finishes until nothing is found any more; returns the ids."""
        ids: list[int] = []
        found = True
        while found:
            await self.look()
            found = False
            while lane := self.lanes.suspects() or self.lanes.next():
                jobs = await self.claim(100, lane=lane)
                await self.finish(jobs)
                ids += [job.id for job in jobs]
                found = found or bool(jobs)
        return ids

    async def _claim(self, **values: Any) -> Any:
        plain = {"done_lane": 0, "lo": 1, "hi": 0, "map": b"", "results": None, "lane": 0, "floor": 0, "n": 0}
        plain |= {"incarnation": self.incarnation, **lock_key(self.incarnation)}
        return await self.kernel.ask("jobs/claim", self.connection, **plain | values)
