"""Keeps the lease, in a thread and on a connection of its own.

A handler that blocks the event loop therefore does not cost the worker its lease. Each renewal is one statement for
the present incarnation and for earlier ones that still have jobs running. The database clock decides whether it came in
time: an incarnation that is not returned is dead for ever, and its jobs belong to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from smena import telemetry
from smena._sql import statement
from smena._worker.link import LeaseLink, hang_up


class LeaseKeeper:
    """Renews until stopped. `lost(incarnations)` is called from the thread for those that expired."""

    def __init__(self, dsn: str, schema: str, lease: float, lost: Callable[[set[int]], None]) -> None:
        self._dsn = dsn
        self._renew = statement("workers/renew", schema)
        self._lease = lease
        self._lost = lost
        self._lock = threading.Lock()
        self._incarnations: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="smena-lease", daemon=True)
        self._connection: LeaseLink | None = None
        self.stopping = False
        self.renewed_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a renewal that has no answer is not waited for."""
        self._stop.set()
        self._thread.join(timeout=1)
        if self._thread.is_alive() and (connection := self._connection) is not None:
            hang_up(connection)
            self._thread.join(timeout=1)

    def hold(self, incarnation: int) -> None:
        """Renews this incarnation from now on; its row was just made."""
        with self._lock:
            self._incarnations.add(incarnation)

    def let_go(self, incarnation: int) -> None:
        with self._lock:
            self._incarnations.discard(incarnation)

    @property
    def held(self) -> list[int]:
        with self._lock:
            return sorted(self._incarnations)

    def _keep(self) -> None:
        every = self._lease / 3
        while not self._stop.wait(max(0.0, self.renewed_at + every - time.monotonic())):
            try:
                connection = self._connection
                if connection is None or connection.closed:
                    connection = self._connection = LeaseLink.connect(
                        self._dsn, autocommit=True, connect_timeout=max(2, int(every)), application_name="smena lease"
                    )
                    connection.patience = max(1.0, every)
                self._tick(connection)
            except Exception as error:  # whatever it is: a worker whose lease nobody keeps claims nothing ever again
                telemetry.emit("database.lost", part="lease", error=str(error).strip())
                self._close()
                self._stop.wait(min(1.0, every / 4))
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _tick(self, connection: psycopg.Connection[Any]) -> None:
        held = self.held
        if held:
            sent = time.monotonic()
            values = {"incarnations": held, "stopping": self.stopping}
            with psycopg.RawCursor(connection) as cursor:
                cursor.execute(self._renew.numbered.encode(), [values[name] for name in self._renew.names])
                renewed = {row[0] for row in cursor.fetchall()}
            expired = {incarnation for incarnation in held if incarnation not in renewed} & set(self.held)
            if expired:
                for incarnation in expired:
                    self.let_go(incarnation)
                self._lost(expired)
            self.renewed_at = sent
        else:
            self.renewed_at = time.monotonic()
