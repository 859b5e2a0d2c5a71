"""A claimed job in memory, and the claim it came with."""

from __future__ import annotations

from typing import Any


class Claim:
    """One claim: a row of the ledger. Forgotten when each of its jobs has an outcome in the database."""

    __slots__ = ("hi", "incarnation", "lane", "left")

    def __init__(self, incarnation: int, lane: int, hi: int, left: int) -> None:
        self.incarnation = incarnation
        self.lane = lane
        self.hi = hi
        self.left = left


class ClaimedJob:
    """A job this process holds. (`pos`, the claim's incarnation) is its fence."""

    __slots__ = ("args", "attempt", "claim", "created_us", "id", "max_attempts", "pos", "rest", "task")

    def __init__(
        self,
        claim: Claim,
        pos: int,
        id: int,
        attempt: int,
        max_attempts: int,
        task: str,
        args: str | None,
        created_us: int,
        rest: dict[str, Any] | None,
    ) -> None:
        self.claim = claim
        self.pos = pos
        self.id = id
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.task = task
        self.args = args
        self.created_us = created_us
        self.rest = rest

    @property
    def ordered(self) -> bool:
        return self.rest is not None and self.rest["order_key"] is not None
