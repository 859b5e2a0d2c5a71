"""How the handler of a job is called in a test: here and now, one at a time.

Whatever runs jobs is written once, as a generator of steps: a `Query` wants rows, a `Call` wants what the handler
returned. `drive` and `adrive` take the steps for a sync and for an async caller.

Where handlers run:
  sync caller, sync handler     in the caller's own thread: what a test put into thread-local state is there
  sync caller, async handler    on a loop of our own in the caller's thread; in a thread of our own when a loop already
                                runs in the caller's. With Django through asgiref, which keeps the ORM's connection
  async caller, async handler   awaited
  async caller, sync handler    in a thread, as in a worker; with Django in the one that has the ORM's connection
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from smena._ops.operation import Query, Rows
from smena._worker import outcome
from smena._worker.claimed import ClaimedJob
from smena._worker.results import Results
from smena.current import CurrentJob, _current

if TYPE_CHECKING:
    from smena.tasks import Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler."""

    task: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    current: CurrentJob


Steps = Generator[Query | Call, Any, T]


class TimedOut(TimeoutError):
    """An async handler took longer than its task's time-out."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended: `row` is what a worker would settle, None when the job is done."""

    row: dict[str, Any] | None
    result: str | None
    error: BaseException | None


def attempt(job: ClaimedJob, call: Call) -> Generator[Call, Any, Ended]:
    """Calls the handler, and judges as a worker does. Raises only what must end the test: Ctrl-C, `pytest.fail`."""
    ended = _Outcome()
    error: BaseException | None = None
    try:
        value = yield call
    except TimedOut as raised:
        error = raised
        ended.settle(job, outcome.timed_out(job, call.task))
    except (Exception, SystemExit) as raised:
        error = _without_our_frames(raised)
        ended.settle(job, outcome.raised(job, call.task, raised))
    else:
        if value is None:
            ended.done(job, None)
        else:
            outcome.returned(job, value, ended)
    return Ended(ended.row, ended.result, error)


def _without_our_frames(error: BaseException) -> BaseException:
    """The error with a traceback that begins in the handler: its author knows who called it."""
    frames = error.__traceback__
    while frames is not None:
        here, frames = frames.tb_frame.f_code, frames.tb_next
        if frames is not None and here in (_called.__code__, _awaited.__code__):
            return error.with_traceback(frames)
    return error


class _Outcome(Results):
    """Takes the outcome of the one job."""

    def __init__(self) -> None:
        super().__init__()
        self.row: dict[str, Any] | None = None
        self.result: str | None = None

    def done(self, job: ClaimedJob, result: str | None) -> None:
        self.result = result

    def settle(self, job: ClaimedJob, row: dict[str, Any]) -> None:
        self.row = row


def drive(steps: Steps[T], ask: Callable[[Query], Rows], loop: PrivateLoop) -> T:
    """Takes the steps for a sync caller."""
    try:
        step = next(steps)
        while True:
            try:
                answer = ask(step) if isinstance(step, Query) else _call(step, loop)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def adrive(steps: Steps[T], ask: Callable[[Query], Awaitable[Rows]]) -> T:
    """Takes the steps for an async caller."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await ask(step) if isinstance(step, Query) else await _acall(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _call(call: Call, loop: PrivateLoop) -> Any:
    token = _current.set(call.current)
    try:
        return loop.run(_awaited(call)) if call.task.is_async else _called(call)
    except asyncio.CancelledError as error:
        raise _own_cancel(call) from error
    finally:
        _current.reset(token)


async def _acall(call: Call) -> Any:
    token = _current.set(call.current)
    try:
        return await (_awaited(call) if call.task.is_async else _in_thread(lambda: _called(call)))
    except asyncio.CancelledError as error:
        this = asyncio.current_task()
        if this is not None and this.cancelling():
            raise  # it is the test that was cancelled
        raise _own_cancel(call) from error
    finally:
        _current.reset(token)


def _own_cancel(call: Call) -> RuntimeError:
    return RuntimeError(f"the handler of {call.task.name} raised CancelledError, and nobody had cancelled it")


def _called(call: Call) -> Any:
    try:
        return call.task.function(*call.args, **call.kwargs)
    except StopIteration as error:
        raise RuntimeError(f"the handler raised StopIteration: {error!r}") from error


async def _awaited(call: Call) -> Any:
    if call.task.timeout is None:
        return await call.task.function(*call.args, **call.kwargs)
    try:
        async with asyncio.timeout(call.task.timeout) as limit:
            return await call.task.function(*call.args, **call.kwargs)
    except TimeoutError as error:
        if limit.expired():
            raise TimedOut(f"the attempt took longer than {call.task.timeout:g} s") from error
        raise


async def _in_thread(call: Callable[[], Any]) -> Any:
    if _uses_django():
        from asgiref.sync import sync_to_async

        return await sync_to_async(call, thread_sensitive=True)()
    return await asyncio.to_thread(call)


def _uses_django() -> bool:
    return "django.db" in sys.modules


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class PrivateLoop:
    """An event loop for the async handlers of a sync caller, made when first needed.

    A `lifespan` is entered before the first of them and left at the end, both in one task: task groups need that.
    """

    def __init__(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None) -> None:
        self._lifespan = lifespan
        self._life: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._runner: asyncio.Runner | None = None
        self._thread: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._lifespan is not None:
            try:
                self._run(self._enter(self._lifespan))
            except BaseException:
                self._close()
                raise
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end, in a copy of the caller's context."""
        if self._life is None and _uses_django() and not _loop_runs_here():
            from asgiref.sync import async_to_sync

            async def result() -> T:
                return await work

            return async_to_sync(result)()
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            # A loop factory keeps the runner from setting the thread's own event loop, which belongs to the test.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            if _loop_runs_here():
                self._thread = ThreadPoolExecutor(1, "smena-testing")
        context = contextvars.copy_context()
        if self._thread is None:
            return self._runner.run(work, context=context)
        return self._thread.submit(self._runner.run, work, context=context).result()

    def __exit__(self, *raised: object) -> None:
        try:
            if self._life is not None:
                self._run(self._end(self._life))
        finally:
            self._close()

    def _close(self) -> None:
        if self._runner is None:
            return
        if self._thread is None:
            self._runner.close()
        else:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()

    async def _enter(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        entered = asyncio.Event()

        async def live() -> None:
            async with lifespan():
                entered.set()
                await self._leave.wait()

        life = asyncio.create_task(live())
        wait = asyncio.create_task(entered.wait())
        await asyncio.wait([life, wait], return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        if life.done():
            await life
        self._life = life

    async def _end(self, life: asyncio.Task[None]) -> None:
        self._leave.set()
        await life
