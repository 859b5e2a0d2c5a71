"""Random histories of the log, step by step: at the end every committed job was claimed, by the workers' own floors.

One step at a time is taken, by an actor that the seed chooses, so a history that fails can be run again by its number.
No step waits for another.
"""

from __future__ import annotations

import random
from typing import Any

from kernel import Claimer, Connection, Held, Kernel, histories, scenario
from smena._maintenance.floor import Floor

STEPS = 120
ROUNDS = 8


class Writer:
    """Enqueues, in transactions of any length that end in any way."""

    def __init__(self, history: History, connection: Connection) -> None:
        self.history = history
        self.connection = connection
        self.open = False
        self.drawn: list[int] = []
        self.reserved: list[int] = []
        self.ids: list[int] = []

    async def step(self) -> None:
        kernel, chance = self.history.kernel, self.history.random.random()
        if not self.open:
            if chance < 0.3:
                self.history.committed += await self._enqueue()
                return
            await self.connection.execute("begin")
            self.open = True
            if chance < 0.5:  # the position long before its row, and before the transaction has an id
                await kernel.rows("lock table smena.job in row exclusive mode", on=self.connection)
                self.reserved.append(await kernel.value("select nextval('smena.pos_seq')", on=self.connection))
                self.drawn += self.reserved
                return
            self.ids += await self._enqueue()
            self.drawn += self.ids
        elif chance < 0.15:
            self.ids += (more := await self._enqueue())
            self.drawn += more
        elif chance < 0.3:
            await self.connection.execute("savepoint s")
            await self._enqueue()
            await self.connection.execute("rollback to s")
        elif chance < 0.4 and self.reserved:
            await self._fill()
        elif chance < 0.75:
            await self.end("commit")
        elif chance < 0.85:
            await self.end("rollback")
        elif chance < 0.88:
            await kernel.terminate(self.connection)
            self.connection = await kernel.connect()
            await self.end(None)

    async def end(self, how: str | None) -> None:
        if how == "commit":
            if self.reserved:
                await self._fill()
            self.history.committed += self.ids
        if how:
            await self.connection.execute(how)
        self.open = False
        self.drawn, self.reserved, self.ids = [], [], []

    async def _enqueue(self) -> list[int]:
        order = {"max_attempts": 1_000, "priority": self.history.random.choice([0, 0, 1])}
        return await self.history.kernel.enqueue(self.history.random.randint(1, 4), on=self.connection, **order)

    async def _fill(self) -> None:
        for pos in self.reserved:
            await self.history.kernel.rows(
                "insert into smena.job (lane, queue, pos, id, state, max_attempts, task, args)"
                " select l.id, l.queue, %s, %s, 'r', 1000, 'work', '{}' from smena.lanes l where l.id = %s",
                pos,
                pos,
                self.history.lane,
                on=self.connection,
            )
        self.ids += self.reserved
        self.reserved = []


class Worker:
    """Claims and settles; its claims may be rolled back, and it may die with what it holds."""

    def __init__(self, history: History, claimer: Claimer) -> None:
        self.history = history
        self.claimer = claimer
        self.held: list[Held] = []
        self.open = False
        self.tried: list[Held] = []

    async def step(self) -> None:
        chance, claimer = self.history.random.random(), self.claimer
        if self.open:
            if chance < 0.4:
                await self.end("rollback" if chance < 0.25 else "commit")
        elif chance < 0.2:
            if self.history.heed:
                await claimer.beat()
            await claimer.look()
        elif chance < 0.4:
            self.held += await claimer.claim(self.history.random.randint(1, 6))
        elif chance < 0.5:
            await claimer.connection.execute("begin")
            self.open = True
            # Moved or not: the floor in the worker's memory is only a hint.
            self.tried = await claimer.claim(self.history.random.randint(1, 6), note=chance < 0.45)
        elif chance < 0.75 and self.held:
            self.history.random.shuffle(self.held)
            some, self.held = self.held[:3], self.held[3:]
            if chance < 0.65:
                await claimer.finish(some)
            else:
                await claimer.settle(some, "s" if chance < 0.7 else "r")
        elif chance < 0.78:
            await self.die()

    async def claim_all(self) -> None:
        if self.history.heed:
            await self.claimer.beat()
        await self.claimer.drain()

    async def end(self, how: str) -> None:
        await self.claimer.connection.execute(how)
        self.open = False
        if how == "commit":
            self.held += self.tried
        self.tried = []

    async def die(self) -> None:
        """Another process takes its place. What the dead one held is not finished by it."""
        await self.history.kernel.kill(self.claimer)
        self.claimer = Claimer(self.history.kernel, self.claimer.connection)
        await self.claimer.register()
        self.held = []


class Interrupted(Floor):
    """A floor duty in whose passes others go on working between any two statements."""

    def __init__(self, history: History) -> None:
        super().__init__("smena", history.kernel.clock)
        self._history = history

    async def _query(self, connection: Connection, name: str, **values: Any) -> Any:
        while self._history.random.random() < 0.2:
            await self._history.act()
        return await super()._query(connection, name, **values)


class History:
    """Actors and their random steps. Without `heed` the workers know nothing but how far they came themselves."""

    def __init__(self, kernel: Kernel, number: int, *, heed: bool = True) -> None:
        self.kernel = kernel
        self.random = random.Random(number)
        self.heed = heed
        self.committed: list[int] = []
        self.ending = False
        self.floors = [Interrupted(self) for _ in range(self.random.choice([1, 1, 2]))]

    async def cast(self, connections: list[Connection]) -> None:
        self.lane = (await self.kernel.ask("jobs/make_lane", queue="q", priority=0))[0][0]
        await self.kernel.ask("jobs/make_lane", queue="q", priority=1)
        self.duty = connections[8]
        self.writers = [Writer(self, connection) for connection in connections[:5]]
        self.workers = [Worker(self, Claimer(self.kernel, connection)) for connection in connections[5:8]]
        for worker in self.workers:
            await worker.claimer.register()
            await worker.claimer.beat()

    async def run(self) -> None:
        for _ in range(STEPS):
            self.kernel.clock.now += self.random.expovariate(8)
            if self.heed and self.random.random() < 0.1:
                await self._pass()
            else:
                await self.act()

    async def act(self) -> None:
        """One step of somebody other than the floor duty. When all is to end, writers and workers are silent."""
        chance = self.random.random()
        if chance < 0.05:
            await self.kernel.reap()
        elif chance < 0.1:
            await self.kernel.promote()
        elif not self.ending:
            await self.random.choice(self.writers if chance < 0.55 else self.workers).step()

    async def _pass(self) -> None:
        n = self.random.randrange(len(self.floors))
        if self.random.random() < 0.1:
            self.floors[n] = Interrupted(self)  # its holder was killed
        self.kernel.clock.now += self.random.choice([0.0, 0.5, 0.5, 2.5, 6.0])
        await self.floors[n].tick(self.duty)
        unsettled = [pos for writer in self.writers for pos in writer.drawn]
        await self.kernel.check_floor(self.floors[n], unsettled=unsettled)

    async def end(self) -> list[int]:
        """Ends every transaction, and then gives the workers some rounds; returns the jobs that were never claimed."""
        self.ending = True
        if self.workers[0].open:
            await self.workers[0].end("commit")
        free = [worker for worker in self.workers if not worker.open]
        await self._overtake(free)
        for each in [*self.writers, *self.workers]:
            if each.open:
                await each.end(self.random.choice(["commit", "rollback"]))
        for worker in self.workers:
            if worker.held:
                await worker.claimer.finish(worker.held)
        floor = self.random.choice(self.floors)
        for _ in range(ROUNDS):
            self.kernel.clock.now += 0.5
            if self.heed:
                await floor.tick(self.duty)
                await self.kernel.check_floor(floor)
            await self.kernel.reap()
            await self.kernel.promote()
            for worker in free:
                await worker.claim_all()
        states = await self.kernel.states(self.committed)
        return [id for id, state in zip(self.committed, states, strict=True) if state not in ("done", "failed")]

    async def _overtake(self, workers: list[Worker]) -> None:
        """Each worker claims beyond everything that is still open, and twice, so that looking back does not help."""
        for _ in range(2):
            self.kernel.clock.now += 2.0
            for worker in workers:
                await worker.claim_all()
                for priority in (0, 1):
                    self.committed += await self.kernel.enqueue(priority=priority)
                await worker.claim_all()

    async def leave(self) -> None:
        """The store as the next history finds it: nothing waits, nobody works."""
        await self.kernel.rows("update smena.job set state = 'd' where state in ('r', 'l')")
        await self.kernel.rows("delete from smena.workers where incarnation <> 1; delete from smena.claims")


async def connections(kernel: Kernel) -> list[Connection]:
    return [await kernel.connect() for _ in range(9)]


@histories(60)
@scenario
async def test_every_committed_job_is_claimed(database: str, numbers: range) -> None:
    async with Kernel(database) as kernel:
        spare = await connections(kernel)
        for number in numbers:
            history = History(kernel, number)
            await history.cast(spare)
            await history.run()
            assert [] == await history.end(), f"history {number} lost jobs"
            spare = [writer.connection for writer in history.writers] + spare[5:]
            await history.leave()


@scenario
async def test_workers_that_only_remember_how_far_they_came_lose_jobs(database: str) -> None:
    """The negative control: the same histories, where nobody looks after the floors."""
    async with Kernel(database) as kernel:
        spare, lost = await connections(kernel), 0
        for number in range(20):
            history = History(kernel, number, heed=False)
            await history.cast(spare)
            await history.run()
            lost += len(await history.end())
            spare = [writer.connection for writer in history.writers] + spare[5:]
            await history.leave()
        assert 0 < lost
