"""A handler's return value as it is kept with the job."""

from __future__ import annotations

from typing import Any

from smena.arguments.storable import MAX_DEPTH, obstacle, suspicious, too_deep
from smena.arguments.wire import encode
from smena.errors import InvalidArguments

MAX_BYTES = 65_536


def encode_result(value: Any) -> str | None:
    """The JSON text of a return value; None for None, which is not kept.

    At most 64 KiB. A result is for reading and need not come back as the same type: a Decimal is kept as its text.
    Raises InvalidArguments for what JSON or PostgreSQL cannot hold; whether the work counts is the caller's decision.

    >>> encode_result({"charged": Decimal("29.30")})
    '{"charged":"29.30"}'
    """
    if value is None:
        return None
    try:
        text = encode(value)
        shown = text.decode()
        # NaN is written as null, so only a text with neither is free of it.
        if "null" in shown or 'NaN"' in shown or suspicious(shown):
            _refuse_obstacles(value)
        if too_deep(shown):
            raise RecursionError
    except InvalidArguments:
        raise
    except RecursionError:
        raise InvalidArguments(
            f"the result is nested more than {MAX_DEPTH} levels deep, or in a circle: return a flatter structure"
        ) from None
    except Exception as error:
        _refuse_obstacles(value)
        raise InvalidArguments(f"the result: {type(error).__name__}: {error}") from None
    if len(text) > MAX_BYTES:
        raise InvalidArguments(
            f"the result is {len(text):,} bytes of JSON, the limit is {MAX_BYTES:,}: "
            "store the data elsewhere and return a reference to it"
        )
    return shown


def _refuse_obstacles(value: Any) -> None:
    if (found := obstacle(value, naive=True)) is not None:
        raise InvalidArguments(f"the result{found[0]}: {found[1]}")
