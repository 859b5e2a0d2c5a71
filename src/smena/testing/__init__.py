"""Help for the tests of services that use Smena.

    with testing.inline(app):              # enqueue runs the handler at once, and touches no database
        client.post("/orders", ...)

    testing.assert_enqueued(charge, kwargs={"purchase": 17}, conn=connection)
    assert testing.drain(app).done == 1    # the real database; what is ready runs here and now

The fixtures are in `smena.testing.plugin`. Names are imported when they are first used: pytest loads that plugin, and
with it this package, wherever Smena is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smena.testing.asserting import (
        EnqueuedJob,
        aassert_enqueued,
        aenqueued,
        arefute_enqueued,
        assert_enqueued,
        enqueued,
        refute_enqueued,
    )
    from smena.testing.databases import on_database
    from smena.testing.drained import Drained, FailedJob
    from smena.testing.draining import adrain, drain
    from smena.testing.modes import inline, manual

__all__ = [
    "Drained",
    "EnqueuedJob",
    "FailedJob",
    "aassert_enqueued",
    "adrain",
    "aenqueued",
    "arefute_enqueued",
    "assert_enqueued",
    "drain",
    "enqueued",
    "inline",
    "manual",
    "on_database",
    "refute_enqueued",
]

_HOMES = {
    "asserting": (
        "EnqueuedJob",
        "aassert_enqueued",
        "aenqueued",
        "arefute_enqueued",
        "assert_enqueued",
        "enqueued",
        "refute_enqueued",
    ),
    "databases": ("on_database",),
    "drained": ("Drained", "FailedJob"),
    "draining": ("adrain", "drain"),
    "modes": ("inline", "manual"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
