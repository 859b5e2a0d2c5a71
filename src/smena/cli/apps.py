"""Finds the app that `-A module:attribute` names."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from smena.app import Smena
from smena.errors import AppNotFound, SmenaError


def load(path: str) -> Smena:
    """Imports the module, with the current folder on the path, and returns its `Smena`."""
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute or "/" in path or module_name.endswith(".py"):
        raise AppNotFound(f"app {path!r} is not of the form module:attribute, such as shop.jobs:app")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except SmenaError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # even SystemExit: a module that exits on import is no app
        raise AppNotFound(_import_failed(path, module_name, folder, error)) from error
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise AppNotFound(f"app {path!r}: module {module_name} has no {attribute!r}{_others(module)}")
        found = getattr(found, name)
    if not isinstance(found, Smena):
        raise AppNotFound(f"app {path!r} is a {type(found).__name__}, not a Smena{_others(module)}")
    return found


def _import_failed(path: str, module_name: str, folder: str, error: BaseException) -> str:
    said = " ".join(traceback.format_exception_only(error)[-1].split())
    missing = isinstance(error, ModuleNotFoundError) and error.name is not None
    if missing and f"{module_name}.".startswith(f"{error.name}."):  # type: ignore[attr-defined]
        return f"app {path!r}: there is no module {error.name}; looked in {folder} and on Python's path"  # type: ignore[attr-defined]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
    return (
        f"app {path!r}: importing module {module_name} failed{at}: {said} "
        f"({folder} is on the path; --debug shows the traceback)"
    )


def _others(module: object) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Smena))
    return f"; it has the app {', '.join(names)}" if names else ""
