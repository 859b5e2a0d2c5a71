"""A mypy plugin that checks the other arguments of `enqueue(…, conn=connection)` too.

Python's types allow no further keyword beside those of a ParamSpec, so a call with `conn=` is not checked at all
without the plugin. With it, `enqueue` and `aenqueue` take the task's own parameters and an optional `conn`:

    [tool.mypy]
    plugins = ["smena.mypy_plugin"]

Where no plugin can be had, `task.using(conn=connection).enqueue(…)` is checked by every type checker.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.nodes import ARG_NAMED_OPT, ARG_STAR2
from mypy.plugin import MethodSigContext, Plugin
from mypy.types import AnyType, FunctionLike, Instance, Parameters, TypeOfAny, get_proper_type

_METHODS = {"smena.tasks.Task.enqueue", "smena.tasks.Task.aenqueue"}


class SmenaPlugin(Plugin):
    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], FunctionLike] | None:
        return _with_conn if fullname in _METHODS else None


def _with_conn(context: MethodSigContext) -> FunctionLike:
    """The task's own parameters and `conn`. Called for each of the two overloads, which become the same."""
    task = get_proper_type(context.type)
    own = get_proper_type(task.args[0]) if isinstance(task, Instance) and task.args else None
    if not isinstance(own, Parameters):
        return context.default_signature  # a task of which nothing is known, such as Task[..., Any]
    kinds, names, types = list(own.arg_kinds), list(own.arg_names), list(own.arg_types)
    at = len(kinds) - (ARG_STAR2 in kinds)
    kinds.insert(at, ARG_NAMED_OPT)
    names.insert(at, "conn")
    types.insert(at, AnyType(TypeOfAny.explicit))
    return context.default_signature.copy_modified(arg_kinds=kinds, arg_names=names, arg_types=types)


def plugin(version: str) -> type[Plugin]:
    """What mypy calls."""
    return SmenaPlugin
