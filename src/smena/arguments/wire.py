"""JSON as Smena writes and reads it: msgspec, and hooks for what it does not know."""

from __future__ import annotations

from typing import Any

import msgspec


def is_model(thing: Any) -> bool:
    """True for a pydantic model or its class. Known by its methods: pydantic is never imported here."""
    return hasattr(thing, "model_dump_json") and hasattr(thing, "model_validate_json")


def _plainer(value: Any) -> Any:
    # A subclass of a plain type (Django's SafeString) equals the plain value; `str(value)` could be overridden.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if is_model(value) and not isinstance(value, type):
        # Aliases are what validation expects; round_trip keeps fields that are parsed from JSON text.
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())
    raise TypeError(
        f"{type(value).__module__}.{type(value).__qualname__} cannot be stored: "
        "Smena stores JSON; pass an id or a dataclass"
    )


def _restored(wanted: Any, value: Any) -> Any:
    if wanted is object:
        return value
    if is_model(wanted):
        # In JSON mode, so that a strict model still takes a text for its UUID.
        return wanted.model_validate_json(msgspec.json.encode(value))
    # msgspec compares the class of what is returned here with the annotation, and names both.
    return value


encode = msgspec.json.Encoder(enc_hook=_plainer).encode
"""The JSON bytes of a value; raises TypeError, ValueError or RecursionError."""


def decoder(wanted: type[Any]) -> msgspec.json.Decoder[Any]:
    """A decoder that takes nothing but `wanted`; raises TypeError for annotations that do not go together."""
    return msgspec.json.Decoder(wanted, dec_hook=_restored)
