"""What `enqueue` does for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smena.testing.in_place import InPlace

if TYPE_CHECKING:
    from smena.app import Smena


@contextmanager
def inline(app: Smena) -> Iterator[Smena]:
    """Each enqueue runs its job at once, in the caller, and touches no database.

    Arguments are checked and encoded as always, and decoded for the handler, which has a real `current_job()`. A
    failed attempt is repeated without a pause as often as the task's `Retry` says; what the handler raised at the end
    comes out of `enqueue`. `conn`, `run_in` and `run_at` are ignored, and the app's lifespan is not entered. What a
    handler enqueues runs when that handler has returned, as a worker would have it.

    >>> with inline(app):
    ...     charge.enqueue(17, Decimal("29.33"))
    """
    before, app.database.stand_in = app.database.stand_in, InPlace(app)
    try:
        yield app
    finally:
        app.database.stand_in = before


@contextmanager
def manual(app: Smena) -> Iterator[Smena]:
    """Each enqueue stores a job in the real database, where nothing runs by itself: `drain` runs it.

    So it is anyway; this is for a test inside an `inline` that holds for all the others.
    """
    before, app.database.stand_in = app.database.stand_in, None
    try:
        yield app
    finally:
        app.database.stand_in = before
