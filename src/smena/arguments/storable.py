"""What keeps a value from being stored as jsonb, and where in the value it sits."""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from smena.arguments.wire import encode, is_model

# jsonb takes some ten thousand levels, but Python's decoders stop below its recursion limit, which depends on how
# deep the caller already is. A fixed limit far below keeps a job from being readable in one process only.
MAX_DEPTH = 100

Found = tuple[str, str]
"""A path below the value, such as `[3].price`, and what is the matter there."""

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
brief = _brief.repr
"""A short `repr` for messages."""

_EXPONENT = re.compile(r"\de\d", re.ASCII)
_LARGE_FLOAT = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?e\d+', re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


def as_floats(text: str) -> str:
    """JSON with large floats written out, `1e22` as `10000000000000000000000.0`.

    jsonb turns `1e22` into digits without a point, which are an int, and for most floats an int of another value.
    Only where nothing but the text says that a number is a float does this matter.
    """
    return _LARGE_FLOAT.sub(_written_out, text) if _EXPONENT.search(text) else text


def _written_out(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else f"{Decimal(match[0]):f}.0"


def suspicious(text: str) -> bool:
    """False if this JSON certainly holds no NUL and no infinite Decimal. A fast look, sometimes wrongly True."""
    return "\\u0000" in text or 'Infinity"' in text


def too_deep(text: str) -> bool:
    """Whether JSON is nested deeper than MAX_DEPTH levels."""
    # Each level takes two characters.
    if len(text) <= 2 * MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [msgspec.json.decode(text)]
    for _ in range(MAX_DEPTH + 1):
        level = [part for value in level if type(value) in (dict, list) for part in _inside(value)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value


def obstacle(value: Any, *, naive: bool = False) -> Found | None:
    """The first thing in `value` that must not or cannot be stored. With `naive`, datetimes without a zone may pass."""
    if isinstance(value, str):
        return _in_text(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", f"{value} has no JSON form: pass None or leave it out")
    if isinstance(value, Decimal):
        return None if value.is_finite() else ("", f"Decimal({str(value)!r}) is no number: pass None or leave it out")
    if isinstance(value, datetime):
        if naive or value.utcoffset() is not None:
            return None
        return "", f"{value!r} has no time zone: use an aware one, such as datetime.now(UTC)"
    steps = parts(value)
    if steps is None:
        return _in_leaf(value)
    if isinstance(value, dict):
        for key in value:
            if (found := obstacle(key, naive=naive) or _in_key(key)) is not None:
                return "", f"key {brief(key)}: {found[1]}"
    for step, part in steps:
        if (found := obstacle(part, naive=naive)) is not None:
            return step + found[0], found[1]
    return None


def parts(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The parts of a container or object, each with its step of the path; None for what has no parts."""
    if isinstance(value, dict):
        return ((f"[{brief(key)}]", part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ((f"[{n}]", part) for n, part in enumerate(value))
    if isinstance(value, (set, frozenset)):
        return (("", part) for part in value)
    names = fields(value)
    return None if names is None else ((f".{name}", part) for name, part in names.items())


def fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, Struct, attrs class or pydantic model; None for anything else."""
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    elif hasattr(type(value), "__attrs_attrs__"):
        names = tuple(field.name for field in type(value).__attrs_attrs__)
    elif is_model(value):
        return dict(value.model_dump())
    else:
        return None
    return {name: getattr(value, name, None) for name in names}


def _in_text(text: str) -> Found | None:
    if "\0" in text:
        return "", f"{brief(text)} holds a NUL character, which PostgreSQL cannot store: remove it or pass bytes"
    if not text.isascii() and _SURROGATE.search(text):
        return "", f"{brief(text)} holds half of a surrogate pair, which is no text: decode the source properly"
    return None


def _in_leaf(value: Any) -> Found | None:
    try:
        encode(value)
    except RecursionError:
        raise
    except Exception as error:
        return "", str(error)
    return None


def _in_key(key: Any) -> Found | None:
    try:
        encode({key: None})
    except RecursionError:
        raise
    except Exception:
        return "", f"a {type(key).__name__} cannot be a key in JSON: use text or whole numbers"
    return None
