"""When a failed job runs again: a pure function of the attempt number and one random factor."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a task is repeated.

    `attempts` counts all runs, the first included. The pause after attempt n is
    `first` × `factor`^(n−1) seconds, at most `cap`, times a random factor in [1 − `jitter`, 1 + `jitter`].

    >>> Retry(attempts=3, first=10, factor=2, jitter=0).pause(2)
    20.0
    """

    attempts: int = 5
    first: float = 10
    factor: float = 2
    cap: float = 3600
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first", "factor", "cap", "jitter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"Retry({name}=) takes a finite number, not {value!r}")
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or not 1 <= self.attempts <= 32767:
            raise ValueError(f"Retry(attempts=) takes a whole number from 1 to 32767, not {self.attempts!r}")
        if not 0 <= self.first <= self.cap:
            raise ValueError(f"Retry(first=) takes 0 to cap ({self.cap!r}) seconds, not {self.first!r}")
        if not self.cap <= 366 * 86400:
            raise ValueError(f"Retry(cap=) takes at most 31622400 seconds, not {self.cap!r}")
        if not self.factor >= 1:
            raise ValueError(f"Retry(factor=) takes 1 or more, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Retry(jitter=) takes 0 to 1, not {self.jitter!r}")

    def pause(self, attempt: int, chance: float | None = None) -> float:
        """Seconds to wait after attempt number `attempt`; `chance` in [0, 1] replaces the random draw in tests."""
        # The exponent is bounded before it is raised, so that attempt 30000 cannot overflow a float.
        base = self.first
        for _ in range(attempt - 1):
            if base >= self.cap or self.factor == 1:
                break
            base *= self.factor
        spread = random.random() if chance is None else chance
        return min(base, self.cap) * (1 - self.jitter + 2 * self.jitter * spread)
