"""Moments and durations as people say them. The present is always the database's, read with the rows."""

from __future__ import annotations

from datetime import datetime

_STEPS = ((86400.0 * 365, "y"), (86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def span(seconds: float) -> str:
    """A duration in one unit, rounded down.

    >>> span(7320)
    '2 h'
    """
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds * 1000))} ms"


def ago(moment: str | None, now: datetime) -> str:
    """How far a moment is from now.

    >>> ago("2026-12-01T10:00:00+00:00", datetime.fromisoformat("2026-12-01T10:05:00+00:00"))
    '5 min ago'
    """
    then = parsed(moment)
    if then is None:
        return moment or "-"
    seconds = (now - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def exact(moment: str | None, now: datetime) -> str:
    """The moment in the local time zone, and how far it is."""
    then = parsed(moment)
    if then is None:
        return moment or "-"
    return f"{then.astimezone():%Y-%m-%d %H:%M:%S %z} ({ago(moment, now)})"


def parsed(moment: str | None) -> datetime | None:
    """None for no moment, and for one that Python cannot hold, such as infinity."""
    if moment is None:
        return None
    try:
        return datetime.fromisoformat(moment)
    except ValueError:
        return None
