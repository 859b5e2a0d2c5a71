"""Locks on files, which the kernel drops when their holder dies, however it dies.

`flock` belongs to the open file, not to the process: a child that inherits the descriptor holds the lock too. That is
used once, on purpose (the server holds its `alive` file), and prevented everywhere else: descriptors are close-on-exec,
and a forked child closes those of its parent before it does anything else.
"""

from __future__ import annotations

import errno
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smena.embedded.complaints import ELSEWHERE
from smena.embedded.waiting import Deadline
from smena.errors import EmbeddedError

if sys.platform == "win32":
    raise EmbeddedError("the embedded PostgreSQL runs on Linux and macOS only: set SMENA_DSN to a server of your own")

import fcntl

_WITHOUT_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class FileLock:
    """A lock that is tried, never waited for. One object holds at most one lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, shared: bool = False) -> bool:
        """Whether the lock is now held. A failed change from shared to exclusive loses the shared one."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open_locks.add(self)
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        except OSError as error:
            self.release()
            if error.errno not in _WITHOUT_LOCKS:
                raise
            raise EmbeddedError(
                f"{self._path.parent} is on a file system without locks ({error.strerror}): {ELSEWHERE}"
            ) from error
        return True

    def release(self) -> None:
        """Unlocks for everybody who inherited the lock, too."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Closes the file without unlocking: those who inherited the lock keep it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _open_locks.discard(self)

    def descriptor(self) -> int:
        """To hand to a child process."""
        assert self._descriptor is not None
        return self._descriptor

    def sign(self) -> None:
        """Writes who holds the lock into the file, for the message of those who wait."""
        os.pwrite(self.descriptor(), f"{os.getpid():<10}\n".encode(), 0)


@contextmanager
def held(path: Path, deadline: Deadline) -> Iterator[None]:
    """Holds `path` exclusively, or says who has it."""
    lock = FileLock(path)
    try:
        # Tried again and again, not waited for in the kernel: a thread that waits there cannot be given up.
        if not deadline.wait_for(lock.take):
            raise EmbeddedError(
                f"{path} is held by process {path.read_text().strip() or '(unknown)'}, which has been starting or "
                f"stopping the server for over {deadline.seconds:.0f} s: see what it does, or end it"
            )
        lock.sign()
        yield
    finally:
        lock.release()


_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_inherited() -> None:
    for lock in list(_open_locks):
        lock.abandon()


os.register_at_fork(after_in_child=_close_inherited)
