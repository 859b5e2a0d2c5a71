"""Waiting for what gives no signal: a lock, a line in a file, a server that answers."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE = 0.01


class Deadline:
    """A moment on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Whether `condition` came true in time."""
        while not condition():
            if self.passed():
                return False
            time.sleep(_PAUSE)
        return True
