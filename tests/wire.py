"""A line to the server that counts what goes over it."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from fix_database import dsn_of


class Wire:
    """Listens on a Unix socket and passes everything on.

    answers      how often the server has said that it is ready
    lose_answer  set it, and the server's next answer is lost with its connection
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        parts = conninfo_to_dict(dsn)
        self._host, self._port = str(parts["host"]), int(parts.get("port") or 5432)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.{self._port}")
        self._listener.listen()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.answers = 0
        self.lose_answer = False
        self.dsn = dsn_of(f"{dsn}&host={folder}", str(parts["dbname"]))
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._host.startswith("/"):
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            else:
                server = socket.create_connection((self._host, self._port))
            self._ends += [client, server]
            self._start(self._pass, client, server)
            self._start(self._count, server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _count(self, source: socket.socket, target: socket.socket) -> None:
        """A message is a letter, its length with itself, and the rest; Z is "ready for the next query"."""
        rest = b""
        try:
            while data := source.recv(65536):
                if self.lose_answer:
                    self.lose_answer = False
                    target.shutdown(socket.SHUT_RDWR)
                    source.shutdown(socket.SHUT_RDWR)
                    return
                rest += data
                while len(rest) >= 5 and len(rest) > (length := int.from_bytes(rest[1:5], "big")):
                    self.answers += rest[:1] == b"Z"
                    rest = rest[length + 1 :]
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def hang_up(self) -> None:
        """Nobody gets through any more."""
        for end in [self._listener, *self._ends]:
            # Closing alone would not wake the thread that waits there.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self.hang_up()
        for thread in self._threads:
            thread.join(5)


@contextmanager
def wire(dsn: str) -> Iterator[Wire]:
    """A line to that database; its `dsn` goes over it."""
    # A short path: a socket's name has at most 107 bytes, which pytest's own folders may exceed.
    with tempfile.TemporaryDirectory() as folder:
        line = Wire(dsn, Path(folder))
        try:
            yield line
        finally:
            line.close()
