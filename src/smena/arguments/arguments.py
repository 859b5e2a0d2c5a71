"""The arguments of one task: encoded where a job is stored, decoded where it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import msgspec

from smena.arguments.difference import difference
from smena.arguments.parameters import Parameters
from smena.arguments.storable import MAX_DEPTH, as_floats, obstacle, suspicious, too_deep
from smena.arguments.wire import decoder, encode
from smena.errors import InvalidArguments

MAX_BYTES = 1_048_576

_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)


class Arguments:
    """Binds, checks, encodes and decodes the arguments of one task. Make it with `Arguments.of`.

    >>> def charge(purchase: int, amount: Decimal, note: str = "") -> None: ...
    >>> arguments = Arguments.of(charge, "charge")
    >>> arguments.encode((17,), {"amount": Decimal("29.30")})
    '{"purchase":17,"amount":"29.30"}'
    >>> arguments.decode('{"purchase":17,"amount":"29.30"}')
    ((17, Decimal('29.30'), ''), {})
    """

    def __init__(self, parameters: Parameters, task_name: str, max_bytes: int) -> None:
        self._task = task_name
        self._max_bytes = max_bytes
        self._signature = parameters.signature
        self._decode = decoder(parameters.struct).decode
        self._walked = parameters.walked
        self._loose = parameters.loose
        every = parameters.signature.parameters.values()
        self.names = tuple(parameter.name for parameter in every)
        self._kinds = tuple(parameter.kind for parameter in every)
        # The common signature has neither *args nor keyword-only parameters and needs no sorting into the call.
        self._flat = all(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in self._kinds)
        self._by_keyword = {
            p.name for p in every if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        }
        self._required = {p.name for p in every if p.default is Parameter.empty}

    @classmethod
    def of(cls, function: Callable[..., Any], task_name: str, *, max_bytes: int = MAX_BYTES) -> Arguments:
        """Reads the signature of `function`; it may be async, a method or a partial.

        `max_bytes` limits the encoded arguments. Raises ConfigurationError for a generator, an annotation that
        cannot be resolved, and a required parameter whose type has no JSON form.
        """
        return cls(Parameters.of(function, task_name), task_name, max_bytes)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The JSON text of a call, with the parameters that were passed and no others.

        Defaults are not stored: a job runs with the defaults of the code that runs it. `*args` is stored under its
        name as a list, `**kwargs` under its name as an object. Raises InvalidArguments, naming the parameter, for
        anything that would not come back as it was passed; an int may stand for a float or a Decimal.
        A datetime keeps its instant, and its zone becomes an offset; the order of a dict's keys and the sign of -0.0
        are not kept.
        """
        passed = self._bound(args, kwargs)
        try:
            text = encode(passed)
            if len(text) > self._max_bytes:
                raise self._refusal(
                    f"the arguments are {len(text):,} bytes of JSON, the limit is {self._max_bytes:,}: "
                    "store the data elsewhere and pass a reference to it"
                )
            shown = as_floats(text.decode()) if self._loose else text.decode()
            if self._walked or suspicious(shown):
                self._refuse_obstacles(passed)
            if too_deep(shown):
                raise RecursionError
            values = msgspec.structs.astuple(self._decode(shown))
            if kwargs or not self._flat:
                every = dict(zip(self.names, values, strict=True))
                sent, got = tuple(passed.values()), tuple(map(every.__getitem__, passed))
            else:
                sent, got = args, values[: len(args)]
            # Equal values of another type, such as 0.5 and Decimal("0.5"), show in the text.
            if got != sent or encode(got) != encode(sent):
                self._refuse_differences(passed, got)
        except InvalidArguments:
            raise
        except Exception as error:
            raise self._explained(passed, error) from None
        return shown

    def decode(self, text: str | bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with. Raises InvalidArguments if they do not fit its present signature.

        Numbers may come back from jsonb, or from a person's correction, in another form: a whole number is taken for
        a float, any number for a Decimal.
        """
        try:
            values = msgspec.structs.astuple(self._decode(text))
        except RecursionError:
            raise self._refusal("the stored arguments are nested too deep to read") from None
        except Exception as error:
            raise self._refusal(_said(error)) from None
        return (values, {}) if self._flat else self._sorted(values)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._flat and len(args) <= len(self.names):
            passed = dict(zip(self.names, args, strict=False))
            if kwargs and kwargs.keys() <= self._by_keyword and passed.keys().isdisjoint(kwargs):
                passed.update(kwargs)
            if len(passed) == len(args) + len(kwargs) and self._required <= passed.keys():
                return passed
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            parameters = self._signature.replace(return_annotation=Parameter.empty)
            raise self._refusal(f"{error}; it takes {parameters}") from None

    def _sorted(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, kind, value in zip(self.names, self._kinds, values, strict=True):
            match kind:
                case Parameter.VAR_POSITIONAL:
                    args += value
                case Parameter.KEYWORD_ONLY:
                    kwargs[name] = value
                case Parameter.VAR_KEYWORD:
                    if clash := value.keys() & self._by_keyword:
                        raise self._refusal(f"{name} repeats the parameter {min(clash)}")
                    kwargs |= value
                case _:
                    args.append(value)
        return tuple(args), kwargs

    def _refuse_obstacles(self, passed: dict[str, Any]) -> None:
        for name, value in passed.items():
            if (found := obstacle(value)) is not None:
                raise self._refusal(f"{name}{found[0]}: {found[1]}")

    def _refuse_differences(self, passed: dict[str, Any], got: tuple[Any, ...]) -> None:
        # What cannot be stored at all often shows as a difference first: NaN comes back as None.
        self._refuse_obstacles(passed)
        for (name, value), back in zip(passed.items(), got, strict=True):
            if (found := difference(value, back)) is not None:
                raise self._refusal(f"{name}{found[0]}: {found[1]}")

    def _explained(self, passed: dict[str, Any], error: Exception) -> InvalidArguments:
        """The error to raise in place of what the JSON library, or a class of the caller, raised."""
        try:
            self._refuse_obstacles(passed)
        except InvalidArguments as refused:
            return refused
        except RecursionError as deep:
            error = deep
        except Exception:
            pass  # The first error says more than a failed search for its place.
        if isinstance(error, RecursionError):
            return self._refusal(
                f"the arguments are nested more than {MAX_DEPTH} levels deep, or in a circle: "
                "pass a flatter structure, or an id"
            )
        return self._refusal(_said(error))

    def _refusal(self, what: str) -> InvalidArguments:
        return InvalidArguments(f"task {self._task}: {what}")


def _said(error: Exception) -> str:
    """What msgspec said, with the path in front and named as the caller knows it."""
    if not isinstance(error, msgspec.MsgspecError):
        return f"{type(error).__name__}: {error}"
    match = _AT.fullmatch(str(error))
    if match is None or not match["path"]:
        return str(error)
    what = match["what"][:1].lower() + match["what"][1:]
    return f"{match['path']}: {'a key: ' if match['key'] else ''}{what}"
