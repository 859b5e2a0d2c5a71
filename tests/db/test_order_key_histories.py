"""Random histories of order keys: enqueuers, activators, finishers, persons and dying workers, some of whom wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import psycopg

from kernel import Claimer, Connection, Held, Kernel, histories, scenario

KEYS = ["a", "b", "c", "d"]
UNDER_WAY = {"r", "l", "m", "s", "u"}
OVER = {"d", "f", "c"}
STEPS = 200


class Actor:
    """One connection, one transaction at a time. A step that waits for another actor's lock keeps it busy."""

    def __init__(self, kernel: Kernel, connection: Connection, moves: Callable[[Actor], Awaitable[None]]) -> None:
        self.kernel = kernel
        self.connection = connection
        self.claimer = Claimer(kernel, connection)
        self.held: list[Held] = []
        self.ids: list[int] = []
        self._moves = moves
        self._task: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    async def step(self) -> None:
        """Takes a step, or goes on waiting in the last one."""
        if self._task is None:
            self._task = asyncio.create_task(self._take())
        await asyncio.wait([self._task], timeout=0.02)
        if self._task.done():
            done, self._task = self._task, None
            done.result()

    async def rest(self, how: str) -> None:
        """Ends the step that waits, and the transaction."""
        if self._task is not None:
            done, self._task = self._task, None
            await done
        if self.open:
            await self.connection.execute(how)

    async def _take(self) -> None:
        try:
            await self._moves(self)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            if self.open:
                await self.connection.rollback()


class History:
    def __init__(self, kernel: Kernel, number: int, connections: list[Connection]) -> None:
        self.kernel = kernel
        self.random = random.Random(number)
        moves = [self.enqueuer] * 3 + [self.worker] * 3 + [self.activator] * 2 + [self.person] * 2
        self.actors = [Actor(kernel, each, move) for each, move in zip(connections, moves, strict=True)]
        self.stored_at: dict[int, float] = {}
        self.begun_at: dict[int, float] = {}
        self.revived: set[int] = set()
        self.now = 0

    async def run(self) -> None:
        for actor in self.actors[3:6]:
            await actor.claimer.register()
        for self.now in range(STEPS):
            await self.random.choice(self.actors).step()
            await self.check()
        # Those who hold locks end first, or the others wait for ever.
        while waiting := [actor for actor in self.actors if actor._task or actor.open]:
            for actor in waiting:
                if actor._task is None:
                    await actor.rest(self.random.choice(["commit", "rollback"]))
                else:
                    await actor.step()
        await self.check()

    async def finish(self) -> None:
        """Everything runs; what is left blocked has a head that blocks it."""
        claimer = await self.kernel.claimer()
        for actor in self.actors[3:6]:
            await self.kernel.kill(actor.claimer)
        for _ in range(100):
            await self.kernel.reap()
            await self.kernel.promote()
            await self.kernel.ask("duties/activate", page=1000)
            lanes = [lane for (lane,) in await self.kernel.rows("select id from smena.lanes")]
            jobs = [job for lane in lanes for job in await claimer.claim_from(lane)]
            await claimer.finish_ordered(jobs)
            await self.check()
            if not jobs:
                break
        left = await self.kernel.rows("select order_key, id, state, after_failed from smena.job where state <> 'd'")
        blocking = {key for key, _, state, then in left if state == "u" or (state == "f" and then == "b")}
        stuck = [(key, id, state) for key, id, state, _ in left if state not in "ufcd" and key not in blocking]
        assert [] == stuck
        await self.kernel.rows("truncate smena.job, smena.order_heads, smena.claims, smena.workers, smena.attempts")

    async def check(self) -> None:
        """At most one job of a key is under way, it is the head, and it overtook nothing that was stored before."""
        rows = await self.kernel.rows(
            "select j.order_key, j.id, j.state, h.job_id from smena.job j"
            " left join smena.order_heads h on h.queue = j.queue and h.order_key = j.order_key"
        )
        for key in KEYS:
            jobs = {id: state for k, id, state, _ in rows if k == key}
            active = [id for id, state in jobs.items() if state in UNDER_WAY]
            assert 1 >= len(active), f"two jobs of key {key}: {active}"
            assert active == [id for k, id, state, head in rows if k == key and head == id and state in UNDER_WAY]
            for id in active:
                before = self.begun_at.get(id, 0)
                overtaken = [
                    other
                    for other, state in jobs.items()
                    if other < id and state not in OVER and self.stored_at.get(other, STEPS) < before
                ]
                assert set(overtaken) <= self.revived, f"job {id} overtook {overtaken}"

    # What they do. Each is one step; transactions span several.

    async def enqueuer(self, actor: Actor) -> None:
        if actor.open:
            if self.random.random() < 0.5:
                how = self.random.choice(["commit", "commit", "rollback"])
                await actor.connection.execute(how)
                self._stored(actor, how == "commit")
            return
        if self.random.random() < 0.6:
            await actor.connection.execute("begin")
        begun, order = (
            self.now,
            {"after_failed": self.random.choice("nnnnb"), "run_in": self.random.choice([0, 0, 0.02])},
        )
        keys = [{"order_key": self.random.choice(KEYS)} for _ in range(self.random.randint(1, 3))]
        actor.ids = await self.kernel.enqueue(keys=keys, on=actor.connection, **order)
        self.begun_at |= dict.fromkeys(actor.ids, begun)
        if not actor.open:
            self._stored(actor, True)

    def _stored(self, actor: Actor, committed: bool) -> None:
        if committed:
            self.stored_at |= dict.fromkeys(actor.ids, self.now)
        actor.ids = []

    async def worker(self, actor: Actor) -> None:
        claimer, chance = actor.claimer, self.random.random()
        if actor.open:
            how = "commit" if chance < 0.7 else "rollback"
            await actor.connection.execute(how)
            if how == "commit":
                actor.held = []
        elif not actor.held:
            lanes = [lane for (lane,) in await self.kernel.rows("select id from smena.lanes", on=actor.connection)]
            actor.held = await claimer.claim_from(self.random.choice(lanes), 0, 2)
        elif chance < 0.05:
            await self.kernel.kill(claimer)
            actor.claimer, actor.held = Claimer(self.kernel, actor.connection), []
            await actor.claimer.register()
        elif chance < 0.2:
            await self.kernel.promote()
        else:
            if chance < 0.5:
                await actor.connection.execute("begin")
            jobs = actor.held
            if chance < 0.75:
                await claimer.finish_ordered(jobs)
            else:
                row = self.random.choice([{"to": to} for to in "sssrrffcu"])
                blocks = row["to"] == "f" and await self.kernel.value(
                    "select after_failed = 'b' from smena.job where id = %s", jobs[0].id, on=actor.connection
                )
                await claimer.settle(jobs[:1], **row, **({"head": False} if blocks else {}))
            if not actor.open:
                actor.held = []

    async def activator(self, actor: Actor) -> None:
        if actor.open:
            await actor.connection.execute(self.random.choice(["commit", "commit", "rollback"]))
            return
        if self.random.random() < 0.4:
            await actor.connection.execute("begin")
        if self.random.random() < 0.1:
            await self.kernel.reap(actor.connection)
        else:
            await self.kernel.ask("duties/activate", actor.connection, page=self.random.choice([1, 1000]))

    async def person(self, actor: Actor) -> None:
        if actor.open:
            await actor.connection.execute(self.random.choice(["commit", "rollback"]))
            return
        found = await self.kernel.rows("select id from smena.job where state <> 'd' order by id", on=actor.connection)
        if self.random.random() < 0.5:
            await actor.connection.execute("begin")
        for (id,) in self.random.sample(found, min(1, len(found))):
            act = self.random.choice(["cancel", "cancel", "requeue", "requeue", "delete_job"])
            answer = await self.kernel.value(f"select smena.{act}(%s, 'test')", id, on=actor.connection)
            if answer == "requeued":
                self.revived.add(id)


@histories(20)
@scenario
async def test_at_most_one_job_of_a_key_is_under_way_and_every_key_goes_on(database: str, numbers: range) -> None:
    async with Kernel(database) as kernel:
        await kernel.ask("jobs/make_lane", queue="q", priority=0)
        connections = [await kernel.connect() for _ in range(10)]
        for number in numbers:
            history = History(kernel, number, connections)
            await history.run()
            await history.finish()
