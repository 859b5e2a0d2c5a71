"""What an operation is: a generator that yields queries, is sent their rows, and returns its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Row = Sequence[Any]
Rows = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Query:
    """A statement by name and its parameters, each of a type that every driver takes: int, float, str, bool, None."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


Operation = Generator[Query, Rows, T]
