"""The slots: N long-lived runners, each of which takes a claimed job, runs it and notes its outcome.

A task per job and a timer per job were measured at ten times the cost, so a runner stays, and its deadline is a number
that one ticker compares every 50 ms. The price: a runner is one asyncio task for many jobs, so it must undo the
cancellation that ended a job before it takes the next, and `why` on the slot says who asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import types
from collections import deque
from collections.abc import Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from smena._worker import outcome
from smena._worker.claimed import ClaimedJob
from smena._worker.results import Results
from smena._worker.threads import Threads
from smena.current import CurrentJob, Shift, _current
from smena.errors import InvalidArguments

if TYPE_CHECKING:
    from smena.tasks import Task

_TICK = 0.05
_YIELD_EVERY = 32


class Side(Protocol):
    """What a slot needs of the job's source before the handler starts."""

    async def load_args(self, job: ClaimedJob) -> str | None: ...
    async def mark_started(self, job: ClaimedJob) -> bool: ...
    def stir(self) -> None: ...
    def lost(self, job: ClaimedJob) -> None: ...


class Slot:
    """One concurrent execution."""

    __slots__ = ("current", "deadline", "job", "reason", "task", "why")

    def __init__(self) -> None:
        self.job: ClaimedJob | None = None
        self.deadline: float | None = None
        self.current: CurrentJob | None = None
        self.why: str | None = None
        self.reason: str | None = None
        self.task: asyncio.Task[None] | None = None


class Slots:
    """Runs claimed jobs, `concurrency` at a time, in the order in which they were claimed."""

    def __init__(
        self,
        concurrency: int,
        tasks: Mapping[str, Task[..., Any]],
        results: Results,
        installation: UUID,
        shift: Shift,
    ) -> None:
        self.concurrency = concurrency
        self.waiting: deque[ClaimedJob] = deque()
        self.running = 0
        self.finished = 0
        self.threads = Threads(concurrency)
        self.side: Side | None = None
        self._tasks = tasks
        self._results = results
        self._installation = installation
        self._shift = shift
        self._idle: list[asyncio.Future[None]] = []
        self._slots: list[Slot] = []
        self._ticker: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def held(self) -> int:
        return len(self.waiting) + self.running

    def start(self) -> None:
        for _ in range(self.concurrency):
            slot = Slot()
            slot.task = asyncio.create_task(self._serve(slot))
            self._slots.append(slot)
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Ends the runners; whatever still runs is cancelled for good."""
        self._ending = True
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        if self._ticker is not None:
            tasks.append(self._ticker)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1)
        self.threads.close()

    def add(self, jobs: list[ClaimedJob]) -> None:
        """Takes jobs in; free runners start at once."""
        self.waiting.extend(jobs)
        for _ in range(min(len(jobs), len(self._idle))):
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)

    def jobs(self) -> list[ClaimedJob]:
        """All jobs that wait or run here."""
        return [*self.waiting, *(slot.job for slot in self._slots if slot.job is not None)]

    def cancel(self, pos: int, reason: str | None) -> None:
        """Somebody asked to cancel the job at this position."""
        for job in list(self.waiting):
            if job.pos == pos:
                self.waiting.remove(job)
                self._results.settle(job, outcome.cancelled(job, reason, back=True))
                self._stir()
        for slot in self._slots:
            if slot.job is not None and slot.job.pos == pos and slot.current is not None:
                first = not slot.current.cancelled
                slot.current.cancelled = True
                slot.reason = reason
                if first and self._is_async(slot.job):
                    self._interrupt(slot, "cancel")

    def interrupt_all(self, why: str, incarnations: set[int] | None = None) -> int:
        """Cancels running handlers: `stop` hands them back, `lost` drops them. Returns how many."""
        count = 0
        for slot in self._slots:
            if slot.job is None or (incarnations is not None and slot.job.claim.incarnation not in incarnations):
                continue
            if why == "lost" and slot.current is not None:
                slot.current.lost = True
            self._interrupt(slot, why)
            count += 1
        return count

    def _is_async(self, job: ClaimedJob) -> bool:
        task = self._tasks.get(job.task)
        return task is not None and task.is_async

    def _interrupt(self, slot: Slot, why: str) -> None:
        if slot.why is None and slot.task is not None:
            slot.why = why
            slot.task.cancel()

    def _stir(self) -> None:
        if self.side is not None:
            self.side.stir()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = self._shift.now()
            for slot in self._slots:
                if slot.deadline is not None and now > slot.deadline and slot.job is not None:
                    self._interrupt(slot, "timeout")

    async def _serve(self, slot: Slot) -> None:
        waiting, results = self.waiting, self._results
        loop = asyncio.get_running_loop()
        served = 0
        while not self._ending:
            if not waiting:
                self._stir()
                future = loop.create_future()
                self._idle.append(future)
                await future
                continue
            job = waiting.popleft()
            slot.job = job
            self.running += 1
            try:
                await self._attempt(slot, job)
            finally:
                self.running -= 1
                slot.job = slot.deadline = slot.current = None
            if slot.why is not None or (slot.task is not None and slot.task.cancelling()):
                await self._absorb(slot)
            self.finished += 1
            served += 1
            if len(results) == 1:
                self._stir()
            if served % _YIELD_EVERY == 0:
                self._stir()
                await asyncio.sleep(0)

    async def _absorb(self, slot: Slot) -> None:
        """Takes in a cancellation that was asked for while the handler was already returning, or by the handler."""
        slot.why = slot.reason = None
        task = slot.task
        assert task is not None
        if task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while task.cancelling():
                task.uncancel()

    async def _attempt(self, slot: Slot, job: ClaimedJob) -> None:
        results = self._results
        task = self._tasks.get(job.task)
        rest = job.rest
        try:
            if task is None:
                results.settle(job, outcome.unfit(job, "UNKNOWN_TASK", f"no task {job.task!r} in this worker's app"))
                return
            if rest is not None and rest["expired"]:
                results.settle(job, outcome.cancelled(job, "expired before it was started", back=True))
                return
            assert self.side is not None
            text = job.args
            if text is None:
                text = await self.side.load_args(job)
                if text is None:
                    self._lost(job)
                    return
            try:
                args, kwargs = task.arguments.decode(text)
            except InvalidArguments as error:
                results.settle(job, outcome.unfit(job, "BAD_ARGUMENTS", str(error)))
                return
            if rest is not None and not rest["repeats"] and not await self.side.mark_started(job):
                self._lost(job)
                return
            if task.timeout is not None:
                slot.deadline = self._shift.now() + task.timeout
            slot.current = current = CurrentJob(job, self._installation, self._shift, slot.deadline)
            # A context of its own: what one job sets must not be there for the next one in this slot.
            context = contextvars.copy_context()
            context.run(_current.set, current)
            if task.is_async:
                value = await _inside(context, task.function(*args, **kwargs))
            else:
                value = await self.threads.run(task.function, args, kwargs, context)
                if inspect.iscoroutine(value):
                    # A plain function around an async one, as many decorators make it: the work is still to be done.
                    value = await _inside(context, value)
            if value is None:
                results.done(job, None)
            else:
                outcome.returned(job, value, results)
        except asyncio.CancelledError as error:
            self._cancelled(slot, job, task, error)
        except BaseException as error:
            results.settle(job, outcome.raised(job, task, error))

    def _cancelled(
        self, slot: Slot, job: ClaimedJob, task: Task[..., Any] | None, error: asyncio.CancelledError
    ) -> None:
        match slot.why:
            case "timeout":
                assert task is not None
                self._results.settle(job, outcome.timed_out(job, task))
            case "cancel":
                self._results.settle(job, outcome.cancelled(job, slot.reason))
            case "stop":
                self._results.settle(job, outcome.interrupted(job))
            case "lost":
                self._lost(job)
            case _:
                if self._closing():
                    raise error
                self._results.settle(job, outcome.raised(job, task, error))

    def _closing(self) -> bool:
        # A cancellation that no slot asked for comes from `stop`, from the end of the whole loop, which cancels the
        # ticker as well, or from the handler's own hand: then it is a failure.
        return self._ending or (self._ticker is not None and self._ticker.cancelling() > 0)

    def _lost(self, job: ClaimedJob) -> None:
        if self.side is not None:
            self.side.lost(job)


@types.coroutine
def _inside(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Runs a coroutine in a context of its own, without a task of its own, which would cost ten times as much."""
    try:
        awaited = context.run(coroutine.send, None)
        while True:
            try:
                answer = yield awaited
            except BaseException as error:
                awaited = context.run(coroutine.throw, error)
            else:
                awaited = context.run(coroutine.send, answer)
    except StopIteration as stop:
        return stop.value
