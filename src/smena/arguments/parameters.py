"""A task's parameters, read once from its function."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import Parameter
from types import GenericAlias
from typing import Any

import msgspec
from msgspec.inspect import AnyType, CustomType, DateTimeType, Field, Type, UnionType, type_info

from smena.arguments.wire import decoder, is_model
from smena.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Parameters:
    """The signature, and a struct with one field per parameter, in order.

    `walked`: values may hold what only a look at each part can refuse, such as a datetime without a zone.
    `loose`: somewhere only the JSON text says whether a number is a float.
    """

    signature: inspect.Signature
    struct: type[msgspec.Struct]
    walked: bool
    loose: bool

    @classmethod
    def of(cls, function: Callable[..., Any], task_name: str) -> Parameters:
        """Raises ConfigurationError, naming function and parameter, for what can never be called from a job."""
        title = f"task {task_name}: {_title(function)}"
        called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        for one in (function, called):
            if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
                raise ConfigurationError(
                    f"{title} is a generator, which a job cannot run: return a value, or enqueue one job per item"
                )
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError, NameError) as error:
            raise ConfigurationError(f"{title} has no signature to check arguments against: {error}") from None
        fields: list[tuple[str, Any, Any]] = []
        walked = loose = False
        for n, parameter in enumerate(signature.parameters.values()):
            wanted, info = _checked(parameter, function, title)
            for part in _types(info, into_objects=True):
                walked |= isinstance(part, DateTimeType) or (isinstance(part, CustomType) and part.cls is not object)
                loose |= isinstance(part, (AnyType, CustomType, UnionType))
            # Numbered fields: a parameter may be called like a method of the struct.
            fields.append((f"p{n}", wanted, _field(parameter)))
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        return cls(signature, struct, walked, loose)


def _checked(parameter: Parameter, function: Callable[..., Any], title: str) -> tuple[Any, Type]:
    where = f"{title}, parameter {parameter.name}"
    wanted = _resolved(parameter, function, where)
    if parameter.kind is Parameter.VAR_POSITIONAL:
        wanted = GenericAlias(tuple, (wanted, ...))
    elif parameter.kind is Parameter.VAR_KEYWORD:
        wanted = GenericAlias(dict, (str, wanted))
    try:
        decoder(wanted)
        info = type_info(wanted)
    except Exception as error:
        raise ConfigurationError(f"{where}: {wanted} cannot be checked: {error}") from None
    if parameter.default is Parameter.empty:
        for part in _types(info, into_objects=False):
            if isinstance(part, CustomType) and part.cls is not object and not is_model(part.cls):
                raise ConfigurationError(
                    f"{where}: {part.cls} cannot be stored as JSON: take an id or a dataclass, or give a default"
                )
    return wanted, info


def _resolved(parameter: Parameter, function: Callable[..., Any], where: str) -> Any:
    annotation = parameter.annotation
    if annotation is Parameter.empty:
        return Any

    # Each parameter by itself: the return annotation need not exist at run time, and the error names the culprit.
    def holder() -> None: ...

    holder.__annotations__ = {"parameter": annotation}
    try:
        hints = typing.get_type_hints(holder, globalns=_globals(function), include_extras=True)
    except Exception as error:
        raise ConfigurationError(
            f"{where}: the annotation {annotation!r} cannot be resolved ({error}): import its names at run time, "
            "not under TYPE_CHECKING, and define them at module level"
        ) from None
    wanted = hints["parameter"]
    # `*args: P.args` of a wrapper says nothing about the types.
    return Any if wanted is object or isinstance(wanted, (typing.ParamSpecArgs, typing.ParamSpecKwargs)) else wanted


def _globals(function: Any) -> dict[str, Any]:
    """The names that the annotations of `function` were written with."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    return dict(getattr(inspect.unwrap(function), "__globals__", {}))


def _field(parameter: Parameter) -> Any:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return msgspec.field(name=parameter.name, default_factory=tuple)
    if parameter.kind is Parameter.VAR_KEYWORD:
        return msgspec.field(name=parameter.name, default_factory=dict)
    if parameter.default is Parameter.empty:
        return msgspec.field(name=parameter.name)
    default = parameter.default
    if type(default) in (bool, int, float, str, type(None)):
        return msgspec.field(name=parameter.name, default=default)
    # A factory, so that the function gets the very object of its default, as in a plain call.
    return msgspec.field(name=parameter.name, default_factory=lambda: default)


def _types(info: Type, *, into_objects: bool) -> Iterator[Type]:
    """A described type and all it is made of; a type may hold itself."""
    seen: set[int] = set()
    left: list[Type] = [info]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for name in part.__struct_fields__:
            value = getattr(part, name)
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Type):
                    left.append(one)
                elif isinstance(one, Field) and into_objects:
                    left.append(one.type)


def _title(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
