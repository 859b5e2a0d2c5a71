"""A job's headers: short texts that travel with it, such as a trace id."""

from __future__ import annotations

from collections.abc import Mapping

from smena.arguments.storable import brief, obstacle
from smena.arguments.wire import encode
from smena.errors import InvalidArguments

MAX_BYTES = 8_192


def encode_headers(headers: Mapping[str, str]) -> str:
    """The JSON text of headers, at most 8 KiB. Raises InvalidArguments if a name or value is no storable text.

    >>> encode_headers({"traceparent": "00-4bf9…-01"})
    '{"traceparent":"00-4bf9…-01"}'
    """
    for name, value in headers.items():
        for text in (name, value):
            if not isinstance(text, str):
                raise InvalidArguments(f"header {brief(name)}: {brief(text)} is no text: headers map texts to texts")
            if (found := obstacle(text)) is not None:
                raise InvalidArguments(f"header {brief(name)}: {found[1]}")
    encoded = encode(dict(headers))
    if len(encoded) > MAX_BYTES:
        raise InvalidArguments(
            f"the headers are {len(encoded):,} bytes of JSON, the limit is {MAX_BYTES:,}: pass data as arguments"
        )
    return encoded.decode()
