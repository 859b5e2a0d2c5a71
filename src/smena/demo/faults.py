"""What goes wrong at the provider, and when: drawn from the seed, never from the clock or the order of arrival."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Fault = Literal["unavailable", "dropped"]


@dataclass(frozen=True, slots=True)
class Faults:
    """Which share of the calls goes wrong, and the latency of every call in seconds.

    `unavailable` calls charge nothing and say so; `dropped` ones charge and lose the answer.
    """

    seed: int = 1
    unavailable: float = 0.05
    dropped: float = 0.02
    latency: float = 0.02

    def __post_init__(self) -> None:
        if not (self.unavailable >= 0 and self.dropped >= 0 and self.unavailable + self.dropped <= 1):
            raise ValueError(f"the shares of bad calls add up to 0 to 1, not {self.unavailable} and {self.dropped}")
        if not 0 <= self.latency <= 60:
            raise ValueError(f"latency takes 0 to 60 seconds, not {self.latency}")

    def draw(self, *, purchase: int, call: int) -> Fault | None:
        """What goes wrong in the `call`-th call for `purchase`: the same in every run with this seed."""
        chance = random.Random(f"{self.seed}:{purchase}:{call}").random()
        if chance < self.unavailable:
            return "unavailable"
        return "dropped" if chance < self.unavailable + self.dropped else None
