"""A few connections, kept open while nobody uses them.

A connection is either in use, by whoever took it, or idle in the list; taking one out of the list is atomic, so that
nobody needs a lock. Nothing runs in the background: neither thread nor task has to be stopped, and a forked process
has nothing to repair.
  taken out        an idle connection that the server has ended is dropped, without a round trip to find out
  given back       kept, unless its transaction is still open or `close` came in between
  left by a fork   the child drops its copies of the parent's sockets without a word to the server
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

C = TypeVar("C", bound=psycopg.Connection[object] | psycopg.AsyncConnection[object])


class Kept(Generic[C]):
    """The idle connections of a process or of one event loop. How many there may be is the taker's to decide."""

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._closed = False

    def take(self) -> C | None:
        """An idle connection that is alive, or None."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if _is_alive(connection):
                    return connection
                connection.pgconn.finish()
        return None

    def give(self, connection: C) -> None:
        """Takes a connection back."""
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.pgconn.finish()
            return
        self._idle.append(connection)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Closes what is idle now, and what is in use when it is given back. From any thread, without waiting."""
        self._closed = True
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                connection.pgconn.finish()

    def leave_to_parent(self) -> None:
        """In a forked child: closes the copies, so that the server hears nothing of it."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                os.dup2(nowhere, connection.pgconn.socket)
                connection.pgconn.finish()
        os.close(nowhere)


def _is_alive(connection: C) -> bool:
    """False if the server has ended this idle connection."""
    try:
        # Reads what has come, without waiting: first the server's last words, if any, then the end of the stream.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True
