"""A worker process: its parts, and the order in which they start and stop.

Stopping, as a shift that hands over:
  1. stop claiming; the duties end with the process
  2. hand back what was claimed and not started
  3. wait for what runs, the lease renewed all the while, `current_job().stopping` true
  4. cancel what is left when the grace is over or a second signal came, and hand it back
  5. hand the results in, close every incarnation, leave
A third signal leaves at once; then the lease runs out and the reapers do the rest. Handlers that do not let themselves
be cancelled cannot keep a process that was told to end by a signal: it leaves without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from smena import telemetry
from smena._drivers.psycopg import aexecute
from smena._maintenance.activate import Activate
from smena._maintenance.counts import Counts
from smena._maintenance.duty import Duties, Duty
from smena._maintenance.floor import Floor, rewind
from smena._maintenance.promote import Promote
from smena._maintenance.prune import Prune
from smena._maintenance.reap import Reap
from smena._maintenance.segments import Segments
from smena._ops.operation import Query
from smena._worker.channel import Channel
from smena._worker.control import Control
from smena._worker.incarnation import check_home, forget, new_incarnation, register, retire, worker_name
from smena._worker.lanes import Lanes
from smena._worker.lease import LeaseKeeper
from smena._worker.link import GONE, Link, hang_up, open_link
from smena._worker.results import Results
from smena._worker.side import Side
from smena._worker.slots import Slots
from smena._worker.source import JobSource
from smena.current import Shift
from smena.database import connect
from smena.errors import ConfigurationError, LeaseLost
from smena.store import look

if TYPE_CHECKING:
    from smena.app import Smena

CHANNELS = 2
_LINGER = 5.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works. Durations in seconds."""

    queues: tuple[str, ...] | None = None
    concurrency: int = 20
    lease: float | None = None
    grace: float = 25.0
    until_empty: bool = False
    maintain: bool = True
    release: str | None = None

    def __post_init__(self) -> None:
        if (
            isinstance(self.concurrency, bool)
            or not isinstance(self.concurrency, int)
            or not 1 <= self.concurrency <= 10_000
        ):
            raise ConfigurationError(f"concurrency={self.concurrency!r}: give a whole number from 1 to 10000")
        if self.lease is not None and not 2 <= self.lease <= 86400:
            raise ConfigurationError(f"lease={self.lease!r}: give a number of seconds from 2 to 86400")
        if not 0 <= self.grace <= 86400:
            raise ConfigurationError(f"grace={self.grace!r}: give a number of seconds from 0 to 86400")


class Worker:
    """One life of a worker process. `run` returns when it was told to stop, or when the queues are empty.

    >>> await Worker(app, WorkerOptions(queues=("mail",))).run()  # doctest: +SKIP
    """

    def __init__(self, app: Smena, options: WorkerOptions | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self.lease = self.options.lease or app.lease
        self.name = worker_name()
        self.failed = 0
        self._schema = app.database.schema
        self._dsn = ""
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._signals = 0
        self._told = False
        self._shift = Shift()
        self._retiring: set[int] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._links: set[Link] = set()
        self.started = asyncio.Event()

    # Starting

    async def run(self) -> None:
        """Works until told to stop. Raises what forbids starting; a database that goes away later is waited for."""
        loop = asyncio.get_running_loop()
        self._dsn = await asyncio.to_thread(lambda: self.app.database.dsn)
        store = await asyncio.to_thread(self._look)
        self.results = Results()
        self.slots = Slots(self.options.concurrency, self.app.tasks, self.results, store.installation, self._shift)
        self.source = JobSource(self.slots, self.results, Lanes(), new_incarnation())

        def lost(incarnations: set[int]) -> None:
            loop.call_soon_threadsafe(self._lost_lease, incarnations)

        self.keeper = LeaseKeeper(self._dsn, self._schema, self.lease, lost)
        self.slots.side = Side(self.source, self._open, self._schema)
        queues = list(self.options.queues) if self.options.queues else None
        self.control = Control(
            self.source, self.keeper, self._open, self._schema, queues, self._unsure, maintain=self.options.maintain
        )
        channels = [Channel(n, self.source, self._open, self._schema, self.name, self._unsure) for n in range(CHANNELS)]
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(telemetry.subscribe(self._count_failures))
            if self.app.lifespan is not None:
                await stack.enter_async_context(self.app.lifespan())
            self._watch_signals(loop)
            await self._register(self.source.incarnation)
            self.keeper.start()
            self.slots.start()
            self._tasks = [asyncio.create_task(self.control.run())]
            self._tasks += [asyncio.create_task(channel.run()) for channel in channels]
            self._tasks += self._duties()
            telemetry.emit("worker.started", worker=self.name, queues=queues, concurrency=self.options.concurrency)
            self.started.set()
            try:
                await self._work()
            finally:
                await self._leave()
                if self._told:
                    _leave_for_certain()

    def stop(self) -> None:
        """Asks the worker to stop: the first call drains, the second cancels what runs, the third leaves at once."""
        self._signals += 1
        self._stop.set()
        if self._signals == 2:
            self._hurry.set()
        elif self._signals >= 3:
            os._exit(1)

    def _look(self) -> Any:
        with connect(self._dsn) as connection:
            return look(connection, self._schema, work=True)

    async def _open(self) -> Link:
        # What a statement claimed that had no answer for a lease term belongs to others, or soon will.
        link = await open_link(self._dsn, patience=max(5.0, self.lease))
        self._links = {known for known in self._links if not known.closed} | {link}
        return link

    async def _register(self, incarnation: int) -> None:
        async with await self._open() as connection:
            await check_home(connection, self._schema)
            await rewind(connection, self._schema)
            await register(
                connection,
                self._schema,
                incarnation=incarnation,
                name=self.name,
                queues=self.options.queues,
                concurrency=self.options.concurrency,
                lease=self.lease,
                release=self.options.release,
            )
        self.keeper.hold(incarnation)

    def _duties(self) -> list[asyncio.Task[Any]]:
        schema = self._schema
        elected: list[Duty] = [
            Floor(schema),
            Promote(schema),
            Activate(schema),
            Segments(schema),
            Counts(schema),
            Prune(schema),
        ]
        reap = Reap(schema, every=min(5.0, self.lease / 6), witness=lambda: self.source.incarnation)
        duties = [
            Duties(elected, self._open, lambda: self.control.maintains),
            Duties([reap], self._open, lambda: not self._stop.is_set()),
        ]
        return [asyncio.create_task(each.run()) for each in duties] if self.options.maintain else []

    def _watch_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(ValueError, NotImplementedError, RuntimeError):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        self._told = True
        self.stop()

    # Working

    async def _work(self) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        waits: list[asyncio.Task[Any]] = [stopped, *self._tasks]
        if self.options.until_empty:
            waits.append(asyncio.create_task(self._until_empty()))
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in done - {stopped}:
            task.result()  # a part that ended has failed, but for the look whether anything is left

    async def _until_empty(self) -> None:
        queues = list(self.options.queues) if self.options.queues else None

        async def look() -> None:
            async with await self._open() as connection:
                while True:
                    await asyncio.sleep(0.05)
                    if not self.source.idle or self.control.beats < 2:
                        continue
                    rows = await aexecute(connection, Query("workers/empty", {"queues": queues}), self._schema)
                    if not rows[0][0] and self.source.idle:
                        return

        await self._insist(look)

    def _lost_lease(self, incarnations: set[int]) -> None:
        """The database says that these leases ran out: their jobs may run elsewhere, nothing of them counts here."""
        telemetry.emit("worker.lost_lease", worker=self.name, incarnations=len(incarnations))
        for job in [job for job in self.slots.waiting if job.claim.incarnation in incarnations]:
            self.slots.waiting.remove(job)
            self.source.lost(job)
        self.slots.interrupt_all("lost", incarnations)
        if self.source.incarnation in incarnations:
            self._renew_incarnation()

    def _unsure(self) -> None:
        """A connection broke inside a claim, or the control connection broke: what the database has under our
        incarnation may not be what we have. It may even have forgotten what it told us, if a standby took over.
        So we go on as a new incarnation, and retire the old one.
        """
        if self.source.incarnation not in self._retiring:
            self._renew_incarnation(retire=self.source.incarnation)

    def _renew_incarnation(self, retire: int | None = None) -> None:
        if self._stop.is_set():
            self.source.registered = False
            return  # no more claims, and leaving closes every incarnation
        if retire is not None:
            self._retiring.add(retire)
            self._background(self._insist(lambda: self._retire(retire)))
        if self.source.registered:
            self.source.registered = False
            self.source.lanes.restart()
            self._background(self._register_anew())

    async def _register_anew(self) -> None:
        incarnation = new_incarnation()
        await self._insist(lambda: self._register(incarnation))
        self.source.incarnation = incarnation
        self.source.registered = True
        self.source.look()

    async def _retire(self, incarnation: int) -> None:
        while incarnation in self.source.in_flight:
            await asyncio.sleep(0.01)
        async with await self._open() as connection:
            known = self.source.known(incarnation)
            handed = await retire(connection, self._schema, incarnation, self.name, known)
            if handed:
                telemetry.emit("job.handed_back", worker=self.name, count=len(handed))
            while self.source.known(incarnation):
                await asyncio.sleep(0.05)
            await forget(connection, self._schema, incarnation)
        self.keeper.let_go(incarnation)
        self._retiring.discard(incarnation)

    async def _insist(self, act: Callable[[], Awaitable[None]]) -> None:
        """Tries until the database lets it through."""
        pause = 0.1
        while True:
            try:
                return await act()
            except (psycopg.Error, *GONE, LeaseLost) as error:
                telemetry.emit("database.lost", part="worker", error=str(error).strip())
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(lambda done: self._tasks.remove(done) if done in self._tasks else None)

    def _count_failures(self, name: str, fields: dict[str, Any]) -> None:
        if name in ("job.failed", "job.unknown"):
            self.failed += 1

    # Leaving

    async def _leave(self) -> None:
        source = self.source
        self._stop.set()
        source.open = False
        self._shift.stopping = True
        self.keeper.stopping = True
        source.hand_back_waiting()
        source.stir_all()
        until = time.monotonic() + self.options.grace
        while self.slots.running and time.monotonic() < until and not self._hurry.is_set():
            await asyncio.sleep(0.02)
        if self.slots.running:
            self.slots.interrupt_all("stop")
            until = time.monotonic() + 2.0
            while self.slots.running and time.monotonic() < until:
                await asyncio.sleep(0.02)
        until = time.monotonic() + 5.0
        while (source.in_flight or not self.results.all_known) and time.monotonic() < until:
            source.stir_all()
            await asyncio.sleep(0.01)
        answers = not source.in_flight and self.results.all_known
        answers = await self._end(self._tasks, patience=2.0 if answers else 0.1) and answers
        await self.slots.stop()
        closing = asyncio.create_task(self._close_incarnations())
        await asyncio.wait([closing], timeout=5.0 if answers else 1.0)
        await self._end([closing], patience=0.1)
        for link in list(self._links):
            await link.close()
        await asyncio.to_thread(self.keeper.stop)
        telemetry.emit("worker.stopped", worker=self.name, finished=self.slots.finished)

    async def _end(self, tasks: Collection[asyncio.Task[Any]], *, patience: float) -> bool:
        """Cancels tasks; those that wait for a silent server find their connections shut, and then it is False."""
        late: set[asyncio.Task[Any]] = set()
        ending = [task for task in tasks if not task.done()]
        for task in ending:
            task.cancel()
        if ending:
            _, late = await asyncio.wait(ending, timeout=patience)
            if late:
                for link in list(self._links):
                    hang_up(link)
                await asyncio.wait(late, timeout=2)
        await asyncio.gather(*(task for task in tasks if task.done()), return_exceptions=True)
        return not late

    async def _close_incarnations(self) -> None:
        """Leaves nothing behind: what is still held goes back now, not when the lease runs out."""
        async with await self._open() as connection:
            for incarnation in self.keeper.held:
                while True:
                    try:
                        await retire(connection, self._schema, incarnation, self.name, [])
                        break
                    except LeaseLost:
                        await asyncio.sleep(0.1)
                await forget(connection, self._schema, incarnation)
                self.keeper.let_go(incarnation)


def _leave_for_certain() -> None:
    """Ends the process a little later, if handlers that do not end keep the event loop or its threads."""

    def leave() -> None:
        logging.getLogger("smena").error("handlers did not end within %g s of the stop: leaving without them", _LINGER)
        os._exit(1)

    watch = threading.Timer(_LINGER, leave)
    watch.daemon = True
    watch.start()
