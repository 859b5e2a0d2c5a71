"""Who uses the server, and who is the last one out.

All steps are taken behind the folder's door, an exclusive lock, by one process at a time:

- to join: hold `users` in share; then start the server, unless it runs;
- to leave: try to hold `users` alone; who succeeds is the last one and stops the server.

A killed process drops its share with its life. If it was the last one, the server stays, and the next process to join
finds it, shares it and, if it is the last one, stops it. See `docs/design/embedded.md`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from types import TracebackType
from typing import Self

from smena.embedded import postmaster
from smena.embedded.binaries import installation
from smena.embedded.complaints import about
from smena.embedded.folder import Folder
from smena.embedded.locks import FileLock, held
from smena.embedded.options import Options
from smena.embedded.running import Running, find_or_launch
from smena.embedded.waiting import Deadline
from smena.errors import EmbeddedError


class Server:
    """One use of the embedded PostgreSQL; made by `embedded.server()`."""

    def __init__(self, folder: Folder, options: Options, *, timeout: float) -> None:
        self.folder = folder.path
        self._folder = folder
        self._options = options
        self._timeout = timeout
        self._users = FileLock(folder.users)
        self._process: int | None = None
        self._running: Running | None = None

    @property
    def dsn(self) -> str:
        """An address for psycopg, asyncpg, SQLAlchemy and Django; it holds the password."""
        if self._running is None:
            raise EmbeddedError(f"the embedded PostgreSQL in {self.folder} is not in use here: call start() first")
        return self._running.dsn

    def describe(self) -> str:
        """One line for people."""
        if self._running is None:
            return f"embedded PostgreSQL in {self.folder}, not in use by this process"
        return f"using embedded PostgreSQL {self._running.version} in {self.folder}"

    def start(self) -> Self:
        """Joins the users of the server, and starts it if it does not run. Does nothing the second time."""
        if self._running is not None and self._process == os.getpid():
            return self
        installation()
        self._folder.prepare()
        with about(self.folder), held(self._folder.door, Deadline(self._timeout)):
            self._running = self._join()
        self._process = os.getpid()
        # For a program that ends without `stop()`. One that is killed leaves the server to the next user.
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Leaves; the last user stops the server. Does nothing when not started, or in a forked child."""
        atexit.unregister(self.stop)
        if self._running is None:
            return
        self._running = None
        if self._process != os.getpid():
            return
        try:
            with about(self.folder), held(self._folder.door, Deadline(self._timeout)):
                self._leave()
        finally:
            self._users.release()

    async def astart(self) -> Self:
        """`start()` in a thread: the event loop goes on."""
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be stopped, so nobody would ever leave what it joins.
            await asyncio.wait([starting])
            if starting.exception() is None:
                await self.astop()
            raise

    async def astop(self) -> None:
        """`stop()` in a thread: the event loop goes on."""
        await asyncio.to_thread(self.stop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    def _join(self) -> Running:
        if not self._users.take(shared=True):
            raise EmbeddedError(f"{self._folder.users} is locked by a program that is not Smena: end it, and try again")
        try:
            # A new deadline: the wait at the door is no part of the start.
            return find_or_launch(self._folder, self._options, Deadline(self._timeout))
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        # Fails, and drops the share, when somebody else holds one.
        if self._users.take():
            try:
                postmaster.stop(self._folder)
            finally:
                self._users.release()
