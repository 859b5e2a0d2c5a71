"""Failure kinds: a word, whose side must act, and whether the job is tried again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from smena.errors import ConfigurationError

_NAME = re.compile(r"[A-Z0-9_]{1,64}", re.ASCII)
_OTHER = re.compile(r"[^A-Z0-9_]+", re.ASCII)


class Side(StrEnum):
    """Who must act: we, they, or a person who first finds out whether the effect happened."""

    OURS = "ours"
    THEIRS = "theirs"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Kind:
    """A failure kind. `retried`: the task's `Retry` applies; never with side undecided.

    The name has 1 to 64 characters of A to Z, 0 to 9 and underscore; ConfigurationError otherwise. A kind of your own
    is ours and retried, unless a mapping says otherwise:

    >>> Kind("PROVIDER_MAINTENANCE", Side.THEIRS)
    Kind(name='PROVIDER_MAINTENANCE', side=<Side.THEIRS: 'theirs'>, retried=True)
    """

    name: str
    side: Side = Side.OURS
    retried: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"failure kind {self.name!r:.100}: a kind is 1 to 64 characters of A-Z, 0-9 and underscore"
            )
        if self.side not in tuple(Side):
            raise ConfigurationError(
                f"failure kind {self.name}: side={self.side!r:.100}; it is ours, theirs or undecided"
            )
        if self.side is Side.UNDECIDED and self.retried:
            raise ConfigurationError(
                f"failure kind {self.name}: what may have happened is never retried blindly, say retried=False"
            )


# CRASHED, UNKNOWN_TASK and BAD_ARGUMENTS get further chances before they are recorded; what is recorded is final.
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        made.name: made
        for made in (
            Kind("VALIDATION", Side.OURS, False),
            Kind("NOT_FOUND", Side.OURS, False),
            Kind("PERMANENT", Side.OURS, False),
            Kind("BAD_ARGUMENTS", Side.OURS, False),
            Kind("UNKNOWN_TASK", Side.OURS, False),
            Kind("TIMEOUT", Side.OURS, True),
            Kind("CRASHED", Side.OURS, False),
            Kind("ERROR", Side.OURS, True),
            Kind("EXTERNAL_5XX", Side.THEIRS, True),
            Kind("EXTERNAL_TIMEOUT", Side.THEIRS, True),
            Kind("EXTERNAL_UNAVAILABLE", Side.THEIRS, True),
            Kind("RATE_LIMITED", Side.THEIRS, True),
            Kind("OUTCOME_UNKNOWN", Side.UNDECIDED, False),
        )
    }
)
"""The built-in kinds, by name."""


def kind(name: str) -> Kind:
    """The built-in kind of this name, else a kind of the user's: ours, retried. ConfigurationError for a bad name."""
    return KINDS.get(name) or Kind(name)


def repaired(name: object) -> str:
    """`name` made a valid kind name. A failing handler is no place to be strict: `not found` becomes NOT_FOUND."""
    return _OTHER.sub("_", name.upper())[:64] or "ERROR" if isinstance(name, str) else "ERROR"
