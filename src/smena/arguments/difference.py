"""Whether what the handler would get is what the caller passed, and if not, where it differs."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from smena.arguments.storable import Found, brief, fields

_JSON_TYPES = (str, list, dict, int, float)


def difference(sent: Any, got: Any) -> Found | None:
    """The first difference between a value and what came back for it; None if they are the same to a handler.

    An int for a float or a Decimal, a subclass of a plain type, and the value of an enum that equals it are the same.
    Objects are compared by their fields: a class may have no `__eq__`.
    """
    if isinstance(sent, datetime) and isinstance(got, datetime):
        # Never by `==`: in the hour that a clock is set back it is false for any two zones.
        if sent - got == timedelta(0):
            return None
        return "", f"{sent!r} would reach the handler as {got!r}: pass it in UTC"
    if isinstance(sent, float) and isinstance(got, Decimal):
        return "", f"a float is not exact, so it cannot stand for a Decimal: pass Decimal({str(sent)!r})"
    if isinstance(sent, dict) and isinstance(got, dict):
        return _in_dict(sent, got)
    for kind in (list, tuple):
        if isinstance(sent, kind) and isinstance(got, kind) and len(sent) == len(got):
            return _first((f"[{n}]", sent[n], got[n]) for n in range(len(sent)))
    if type(sent) is type(got) and (mine := fields(sent)) is not None and (other := fields(got)) is not None:
        return _first((f".{name}", mine[name], other.get(name)) for name in mine)
    if fields(sent) is None and sent == got:
        return None
    return "", _other_type(sent, got)


def _in_dict(sent: dict[Any, Any], got: dict[Any, Any]) -> Found | None:
    for key in sent:
        if key not in got:
            advice = "use text keys, or annotate the type of the keys"
            if isinstance(key, str):
                advice = "the annotation has no such key"
            return "", f"the key {brief(key)} would not reach the handler: {advice}"
    return _first((f"[{brief(key)}]", sent[key], got[key]) for key in sent)


def _first(pairs: Any) -> Found | None:
    for step, sent, got in pairs:
        if (found := difference(sent, got)) is not None:
            return step + found[0], found[1]
    return None


def _other_type(sent: Any, got: Any) -> str:
    mine, other = type(sent).__name__, type(got).__name__
    if mine == other:
        return f"{brief(sent)} would reach the handler as {brief(got)}"
    advice = f"pass a {other}"
    if isinstance(got, _JSON_TYPES):
        advice = f"annotate the parameter as {mine}, or {advice}"
    return f"the {mine} {brief(sent)} would reach the handler as the {other} {brief(got)}: {advice}"
