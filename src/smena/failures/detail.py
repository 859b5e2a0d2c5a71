"""What is kept about an exception: enough to find its cause, bounded, and always storable."""

from __future__ import annotations

import reprlib
from typing import Any

from smena.errors import JobFailure, OutcomeUnknown
from smena.failures.frames import frames_of
from smena.failures.text import cut, cut_middle

MESSAGE_BYTES = 2_048
TRACEBACK_BYTES = 8_192
_CAUSE_BYTES = 512
_MOST_CAUSES = 9

_PLAIN = (bool, int, float, complex, type(None))


def detail_of(error: BaseException) -> dict[str, Any]:
    """Type, message, traceback and causes of an exception, for jsonb. Never raises.

    The message has at most 2 KiB, the traceback text 8 KiB, with the frames of the application kept longest. Causes
    are the chain of `raise … from` and of failures while handling, and the members of groups, at most nine.

    >>> detail_of(ValueError("no such purse"))["message"]
    'no such purse'
    """
    shown = _chain(error)
    detail: dict[str, Any] = {"type": type_of(error), "message": message_of(error)}
    # The root cause first and the error itself last, as Python prints them.
    share = TRACEBACK_BYTES // len(shown) - 2
    sections = [_section(one, share) for one, _ in reversed(shown)]
    detail["traceback"] = cut_middle("\n\n".join(sections), TRACEBACK_BYTES)
    if causes := [
        {"type": type_of(one), "message": cut(message_of(one), _CAUSE_BYTES), "how": how} for one, how in shown[1:]
    ]:
        detail["causes"] = causes
    if isinstance(error, OutcomeUnknown) and (probe_key := getattr(error, "probe_key", None)) is not None:
        detail["probe_key"] = cut(_shown(probe_key), _CAUSE_BYTES)
    return detail


def type_of(error: BaseException) -> str:
    """The class with its module, except for Python's own."""
    cls = type(error)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return cut(f"{module}{cls.__qualname__}", 200)


def message_of(error: BaseException) -> str:
    """The message, at most 2 KiB, made without formatting what would be cut off anyway."""
    try:
        return cut(_message(error), MESSAGE_BYTES)
    except BaseException as broken:
        # Even SystemExit: an exception's own `__str__` must not take the worker with it.
        return f"<its str() raised {type(broken).__name__}>"


def _message(error: BaseException) -> str:
    if isinstance(error, JobFailure) and (detail := getattr(error, "detail", "")):
        return _shown(detail)
    # The built-in ways of formatting are repeated here, bounded: `ValueError(rows)` may hold a million of them.
    method = type(error).__str__
    if method is BaseException.__str__:
        if len(error.args) == 1:
            return _shown(error.args[0])
        return f"({', '.join(_brief.repr(arg) for arg in error.args[:20])})" if error.args else ""
    if method is KeyError.__str__ and len(error.args) == 1:
        return _brief.repr(error.args[0])
    return str.__str__(str(error))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, list, tuple, dict, set, frozenset, *_PLAIN)):
        return _brief.repr(value)
    return str.__str__(str(value))


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 50
        self.maxstring = self.maxother = self.maxlong = 1000

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(bytes(value[: self.maxstring]))

    repr_bytearray = repr_bytes


_brief = _Brief()


def _chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """The exception, and behind it its causes with the word for how they belong to it."""
    shown = [(error, "")]
    seen = {id(error)}
    for one, _ in shown:
        related: list[tuple[BaseException | None, str]] = [(one.__cause__, "cause")]
        if one.__cause__ is None and not one.__suppress_context__:
            related = [(one.__context__, "context")]
        if isinstance(one, BaseExceptionGroup):
            related += [(member, "member") for member in one.exceptions[:_MOST_CAUSES]]
        for other, how in related:
            if other is not None and id(other) not in seen and len(shown) <= _MOST_CAUSES:
                seen.add(id(other))
                shown.append((other, how))
    return shown


def _section(error: BaseException, limit: int) -> str:
    last = f"{type_of(error)}: {cut(message_of(error), _CAUSE_BYTES // 2)}".removesuffix(": ")
    try:
        frames = frames_of(error.__traceback__, limit - len(last.encode()))
    except Exception as broken:
        # A generated module may have a loader that fails; the failure is worth keeping without its frames.
        frames = f"[frames not readable: {type_of(broken)}]\n"
    return f"{frames}{last}"
