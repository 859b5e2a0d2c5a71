"""A pytest plugin for a child process: Django cannot import psycopg 3, everybody else can."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

_import = builtins.__import__


def _hiding(name: str, globals: Mapping[str, Any] | None = None, *rest: Any, **more: Any) -> Any:
    if name.partition(".")[0] == "psycopg" and str((globals or {}).get("__name__", "")).startswith("django."):
        raise ImportError(f"{name} is hidden from Django")
    return _import(name, globals, *rest, **more)


builtins.__import__ = _hiding
