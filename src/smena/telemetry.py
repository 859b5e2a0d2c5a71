"""Named events. Logic emits them; logs, metrics and traces subscribe. With no subscriber an event costs a list look-up.

worker.started worker.stopped worker.lost_lease
job.failed job.retried job.unknown job.cancelled job.snoozed job.handed_back job.unfit
job.lost_token       a result arrived under a token that is no longer the owner's; it changed nothing
job.result_refused   the value that a handler returned could not be stored; the job is done without it
jobs.finished        one event for a batch: `count`
claims.reaped        a dead worker's jobs were given to others: `count`
duty.failed          a tick of a background duty raised; it is run again
database.lost database.back
position_rewound     the sequence was behind the log, as after a restore, and was moved
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Subscriber = Callable[[str, dict[str, Any]], None]

_subscribers: list[Subscriber] = []

_logger = logging.getLogger("smena")

_LEVELS = {
    "job.failed": logging.ERROR,
    "job.unknown": logging.ERROR,
    "job.lost_token": logging.WARNING,
    "job.result_refused": logging.ERROR,
    "job.retried": logging.WARNING,
    "job.unfit": logging.WARNING,
    "worker.lost_lease": logging.ERROR,
    "worker.started": logging.INFO,
    "worker.stopped": logging.INFO,
    "claims.reaped": logging.WARNING,
    "duty.failed": logging.ERROR,
    "database.lost": logging.ERROR,
    "database.back": logging.INFO,
    "position_rewound": logging.ERROR,
}


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Calls `subscriber(name, fields)` for each event from now on. Returns what ends it.

    A subscriber that raises is logged and does not disturb the work.

    >>> stop = subscribe(lambda name, fields: print(name, fields["count"]))
    >>> emit("jobs.finished", count=3)
    jobs.finished 3
    >>> stop()
    """
    _subscribers.append(subscriber)
    return lambda: _subscribers.remove(subscriber)


def emit(name: str, **fields: Any) -> None:
    """Tells the subscribers of an event."""
    for subscriber in tuple(_subscribers):
        try:
            subscriber(name, fields)
        except Exception:
            _logger.exception("a subscriber of %s failed", name)


def log_events(name: str, fields: dict[str, Any]) -> None:
    """The subscriber that writes events to the logger `smena`; the command line installs it."""
    level = _LEVELS.get(name, logging.DEBUG)
    if _logger.isEnabledFor(level):
        words = " ".join(f"{key}={value}" for key, value in fields.items() if value is not None)
        _logger.log(level, "%s %s", name, words, extra={"event": name, **{f"smena_{k}": v for k, v in fields.items()}})
