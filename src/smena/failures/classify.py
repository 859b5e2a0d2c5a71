"""From an exception to a failure: what the handler said, else what the mapping says, else ERROR."""

from __future__ import annotations

import collections.abc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from smena.errors import ConfigurationError, JobFailure, OutcomeUnknown, Permanent, Transient
from smena.failures.detail import detail_of, message_of, type_of
from smena.failures.kinds import KINDS, Kind, Side, kind, repaired

Verdict = str | Kind | JobFailure | None
"""What a rule says: a kind, an exception to treat as if it had been raised, or None for "not my case"."""

Mapping = collections.abc.Mapping[type[BaseException], str | Kind | Callable[[Any], Verdict]]
"""Exception class → kind, or a function of the exception. The class nearest to the exception's own decides."""

Decision = tuple[Kind, bool, float | None]
"""The kind, whether the job is retried, and the pause if one was named."""

_UNCLASSIFIED: Decision = (KINDS["ERROR"], True, None)
_MOST_LEAVES = 1000


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt. `retried`: the task's `Retry` applies; `retry_after`: its pause in seconds, if one was named.

    `detail` can always be stored as jsonb: type, message, traceback, causes.
    """

    kind: str
    side: Side
    retried: bool
    detail: dict[str, Any]
    retry_after: float | None = None


def check_mapping(mapping: Mapping) -> Mapping:
    """`mapping` itself; ConfigurationError for a key that is no exception class or a value that names no kind.

    >>> check_mapping({ConnectionRefusedError: "EXTERNAL_UNAVAILABLE"})
    {<class 'ConnectionRefusedError'>: 'EXTERNAL_UNAVAILABLE'}
    """
    for cls, rule in mapping.items():
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise ConfigurationError(f"failures={{{cls!r:.100}: …}}: the keys are exception classes")
        if isinstance(rule, str):
            kind(rule)
        elif not isinstance(rule, Kind) and not callable(rule):
            raise ConfigurationError(
                f"failures={{{cls.__qualname__}: {rule!r:.100}}}: give a kind's name, a Kind, "
                "or a function of the exception that returns one"
            )
    return mapping


def classify(error: BaseException, mapping: Mapping) -> Failure:
    """The failure that `error` is. Never raises, whatever the exception's class or a rule does.

    `Permanent` is not retried and `Transient` is, whatever their kind; nothing whose outcome is unknown is retried.
    In an exception group the worst member decides: unknown before permanent before transient.

    >>> classify(ConnectionRefusedError(), {OSError: "EXTERNAL_UNAVAILABLE"}).side
    <Side.THEIRS: 'theirs'>
    """
    trouble: list[str] = []
    decisions = [_decide(leaf, mapping, trouble) for leaf in _leaves(error, mapping)]
    found, retried, retry_after = max(decisions, key=_gravity, default=_UNCLASSIFIED)
    detail = detail_of(error)
    if trouble:
        detail["mapping"] = trouble[0]
    return Failure(found.name, found.side, retried, detail, retry_after)


def _gravity(decision: Decision) -> int:
    found, retried, _ = decision
    return 2 if found.side is Side.UNDECIDED else 0 if retried else 1


def _leaves(error: BaseException, mapping: Mapping) -> Iterator[BaseException]:
    left = [error]
    for _ in range(_MOST_LEAVES):
        one = left.pop()
        if isinstance(one, BaseExceptionGroup) and not _rules(one, mapping):
            left += reversed(one.exceptions)
        else:
            yield one
        if not left:
            return


def _rules(error: BaseException, mapping: Mapping) -> list[Any]:
    """The rules for an exception, the nearest class first. A rule for Exception does not decide about a group."""
    group = isinstance(error, BaseExceptionGroup)
    return [
        mapping[cls]
        for cls in type(error).__mro__
        if cls in mapping and (not group or issubclass(cls, BaseExceptionGroup))
    ]


def _decide(error: BaseException, mapping: Mapping, trouble: list[str]) -> Decision:
    if isinstance(error, JobFailure):
        return _as_raised(error)
    for rule in _rules(error, mapping):
        verdict = rule
        if not isinstance(rule, (str, Kind)):
            try:
                verdict = rule(error)
            except Exception as broken:
                # The attempt failed all the same, and the next rule may know why.
                trouble.append(f"the rule for {type_of(error)} raised {type_of(broken)}: {message_of(broken)}")
                continue
        match verdict:
            case JobFailure():
                return _as_raised(verdict)
            case Kind():
                return verdict, verdict.retried, None
            case str():
                found = kind(repaired(verdict))
                return found, found.retried, None
            case None:
                continue
            case _:
                trouble.append(f"the rule for {type_of(error)} returned a {type(verdict).__name__}, which is no kind")
    return _UNCLASSIFIED


def _as_raised(error: JobFailure) -> Decision:
    if isinstance(error, OutcomeUnknown):
        return KINDS["OUTCOME_UNKNOWN"], False, None
    # A subclass may have an `__init__` of its own that sets none of the attributes.
    permanent = isinstance(error, Permanent)
    found = kind(repaired(getattr(error, "kind", "PERMANENT" if permanent else "ERROR")))
    if found.side is Side.UNDECIDED or permanent:
        return found, False, None
    if isinstance(error, Transient):
        return found, True, _seconds(getattr(error, "retry_after", None))
    return found, found.retried, None


def _seconds(value: Any) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return max(0.0, float(value))
