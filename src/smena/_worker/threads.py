"""Threads for sync handlers.

A thread takes a call, runs it and puts the answer into a deque; the loop is woken once for a burst of answers, not
once for each. The standard executor wakes it per call, which was measured three times slower.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Call = tuple["asyncio.Future[Any]", contextvars.Context, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Threads:
    """Up to `most` daemon threads, started as they are needed. Abandoned threads are replaced."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._answers: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waking = False
        self._started = 0
        self._busy = 0
        self.abandoned = 0

    async def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: contextvars.Context
    ) -> Any:
        """Runs the call in a thread. Cancelling gives the thread up: it goes on, and its answer is dropped."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        future = self._loop.create_future()
        self._busy += 1
        if self._busy + self.abandoned > self._started and self._started - self.abandoned < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"smena-{self._started}", daemon=True).start()
        self._calls.put((future, context, function, args, kwargs))
        try:
            return await future
        except asyncio.CancelledError:
            self.abandoned += 1
            raise
        finally:
            self._busy -= 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, context, function, args, kwargs = call
            result, error = None, None
            if not future.cancelled():
                try:
                    result = context.run(function, *args, **kwargs)
                except BaseException as raised:  # the answer belongs to the job, whatever it is
                    error = raised
            self._answers.append((future, result, error))
            del call, future, context, function, args, kwargs, result, error
            if not self._waking:
                self._waking = True
                assert self._loop is not None
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return  # the loop is closed: the process is going

    def _deliver(self) -> None:
        # The flag falls before the deque is emptied: an answer that comes between the two wakes the loop again.
        self._waking = False
        while self._answers:
            future, result, error = self._answers.popleft()
            if future.cancelled():
                self.abandoned -= 1
            elif error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):
                future.set_exception(RuntimeError(f"the handler raised StopIteration: {error!r}"))
            else:
                future.set_exception(error)

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)
