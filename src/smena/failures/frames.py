"""A traceback's frames as text, bounded: those of the application are kept longest."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType

from smena.failures.text import cut, cut_middle

_MOST_FRAMES = 60
_LIBRARY = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(frozen=True, slots=True)
class _Frame:
    text: str
    library: bool


def frames_of(traceback: TracebackType | None, limit: int) -> str:
    """The frames as Python prints them, at most `limit` bytes, the innermost last; the worker's own are left out.

    Too many: library frames go first, then what is in the middle.
    """
    frames = list(_frames(traceback))
    if not frames:
        return ""
    text = _joined(frames)
    if len(text.encode(errors="replace")) > limit:
        text = _joined(_folded(frames))
    return cut_middle(text, limit)


def _joined(frames: list[_Frame]) -> str:
    return "Traceback (most recent call last):\n" + "".join(frame.text for frame in frames)


def _folded(frames: list[_Frame]) -> list[_Frame]:
    """Each run of library frames as one line; the innermost frame, where it was raised, stays."""
    folded: list[_Frame] = []
    for library, run in groupby(frames[:-1], key=lambda frame: frame.library):
        run_of = list(run)
        folded += [_Frame(f"  [{len(run_of)} library frames]\n", True)] if library else run_of
    return [*folded, frames[-1]]


def _frames(traceback: TracebackType | None) -> Iterator[_Frame]:
    # Endless recursion leaves a thousand frames; reading the source of each would cost more than it tells.
    every: list[TracebackType] = []
    while traceback is not None:
        every.append(traceback)
        traceback = traceback.tb_next
    while every and str(every[0].tb_frame.f_globals.get("__name__")).startswith("smena._worker"):
        del every[0]  # The task's author knows that a worker called it.
    left_out = len(every) - _MOST_FRAMES
    for n, one in enumerate(every):
        if left_out > 0 and _MOST_FRAMES // 3 <= n < _MOST_FRAMES // 3 + left_out:
            if n == _MOST_FRAMES // 3:
                yield _Frame(f"  [{left_out} frames]\n", False)
            continue
        yield _frame(one)


def _frame(traceback: TracebackType) -> _Frame:
    code = traceback.tb_frame.f_code
    number = traceback.tb_lineno or 0
    line = linecache.getline(code.co_filename, number, traceback.tb_frame.f_globals).strip()
    text = f'  File "{cut(code.co_filename, 300)}", line {number}, in {cut(code.co_qualname, 200)}\n'
    if line:
        text += f"    {cut(line, 200)}\n"
    packages = any(folder in code.co_filename for folder in _PACKAGES)
    return _Frame(text, packages or code.co_filename.startswith(_LIBRARY))
