"""What PostgreSQL and the system complain about, with what to do next."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smena.errors import EmbeddedError

ELSEWHERE = "choose another folder with SMENA_DATA_DIR or data_dir"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}

# The first text found decides. PostgreSQL is always run with English messages.
_ADVICE = (
    # The hint alone comes when a last half page fitted.
    (("No space left on device", "Disk quota exceeded", "Check free disk space"), "{full}"),
    (
        ("could not look up effective user ID",),
        "initdb needs an entry for this user in /etc/passwd: add one, or set SMENA_DSN to a server of your own",
    ),
    (
        ("shared memory segment", "could not map anonymous shared memory"),
        "give the machine or container more shared memory, or less to the server: "
        'settings={{"shared_buffers": "16MB", "dynamic_shared_memory_type": "mmap"}}',
    ),
    (
        ("invalid value for parameter", "unrecognized configuration parameter", "outside the valid range"),
        "correct `settings`",
    ),
    (("Permission denied",), "let the server's user read and enter the path, or choose another one"),
)


def refusal(doing: str, folder: Path, output: str) -> EmbeddedError:
    """PostgreSQL's own words, and advice if we know any. `doing`: such as "start"."""
    advice = "set SMENA_DSN to a server of your own if this cannot be repaired"
    for texts, known in _ADVICE:
        if any(text in output for text in texts):
            advice = known.format(full=_full(folder))
            break
    said = "\n".join(f"  {line}" for line in output.strip().splitlines()[-12:])
    return EmbeddedError(
        f"cannot {doing} the embedded PostgreSQL in {folder}: {advice}."
        + (f"\nPostgreSQL said:\n{said}" if said else " PostgreSQL said nothing.")
    )


@contextmanager
def about(folder: Path) -> Iterator[None]:
    """Turns errors of the system into errors about `folder`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            advice = _full(folder)
        elif error.errno in _CLOSED:
            advice = f"it must be writable by this user: change that, or {ELSEWHERE}"
        elif error.errno in _NO_FOLDER:
            advice = f"it must be a folder: {ELSEWHERE}"
        else:
            advice = f"{ELSEWHERE}, or set SMENA_DSN to a server of your own"
        raise EmbeddedError(f"cannot use {folder} for the embedded PostgreSQL: {error}; {advice}") from error


def _full(folder: Path) -> str:
    state = "the disk is full"
    try:
        disk = os.statvfs(folder)
        state += f" ({disk.f_bavail * disk.f_frsize // 2**20} MB free)"
    except OSError:
        pass  # The advice holds without the number.
    return f"{state}: free some space, or {ELSEWHERE}"
