"""A TCP proxy in front of a server, which cuts the link or swallows what is sent over it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Proxy:
    """Listens on `port` until closed. An order has been carried out when its call returns."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._refuses = False
        self._stalls = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def cut(self) -> None:
        """Resets every connection, and each new one, until mended."""

        def act() -> None:
            self._refuses = True
            for link in self._links:
                link.cut()

        self._do(act)

    def stall(self) -> None:
        """Swallows everything, on present and new connections, without a word."""

        def act() -> None:
            self._stalls = True
            for link in self._links:
                link.flows.clear()

        self._do(act)

    def mend(self, *, forget: bool = False) -> None:
        """The link is whole again; with `forget` only for new connections, and the stalled ones hear nothing ever."""

        def act() -> None:
            self._refuses = self._stalls = False
            for link in self._links:
                if not forget:
                    link.flows.set()

        self._do(act)

    def close(self) -> None:
        self._do(lambda: self._closing.set())
        self._thread.join(10)

    def _do(self, act: Callable[[], Any]) -> None:
        async def run() -> None:
            act()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        server = await asyncio.start_server(self._join, sock=self._listener)
        self._ready.set()
        await self._closing.wait()
        server.close()
        for link in self._links:
            link.flows.set()
            link.cut()
        while self._links:
            await asyncio.sleep(0.01)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        link = _Link(writer)
        self._links.add(link)
        if not self._stalls:
            link.flows.set()
        try:
            await link.flows.wait()
            there, back = await asyncio.open_connection(*self._target)
            link.ends.append(back)
            ways = [asyncio.create_task(way) for way in (link.carry(reader, back), link.carry(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except OSError:
            pass  # the server is away
        finally:
            link.cut()
            self._links.discard(link)


class _Link:
    """One connection through the proxy."""

    def __init__(self, end: asyncio.StreamWriter) -> None:
        self.ends = [end]
        self.flows = asyncio.Event()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()

    def cut(self) -> None:
        for end in self.ends:
            end.transport.abort()
