"""A PostgreSQL of one's own for development, demonstrations and tests, shared by all processes that ask for it.

    with embedded.server() as server:
        psycopg.connect(server.dsn)

The binaries come from the `embedded` extra. The server starts with the first user of a data folder and stops with the
last one; every user may be killed at any moment. How that holds is argued in `docs/design/embedded.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smena.embedded.folder import Folder, default_folder
from smena.embedded.options import Options
from smena.embedded.sharing import Server

__all__ = ["Server", "default_folder", "server"]


def server(
    data_dir: Path | str | None = None,
    *,
    durable: bool = True,
    max_connections: int | None = None,
    settings: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Server:
    """The server of `data_dir`; nothing happens before `start()`, `with` or `async with`.

    `data_dir`: made when missing; by default `postgresql` in SMENA_DATA_DIR, else in the user's data folder.
    `durable`: `False` turns fsync off, for data that may be lost with the machine (tests).
    `max_connections`: 200 unless given. `settings`: more server settings, such as `{"wal_level": "logical"}`.
    They matter to whoever starts the server; a process that finds it running with others gets an `EmbeddedError`.
    `timeout`: how many seconds a start, or the wait for another process's start or stop, may take.

    >>> with server(Path("/tmp/demo")) as postgres:
    ...     print(postgres.describe())
    using embedded PostgreSQL 18.6 in /tmp/demo
    """
    folder = Folder.at(default_folder() if data_dir is None else Path(data_dir))
    options = Options(durable=durable, max_connections=max_connections, settings=dict(settings or {}))
    return Server(folder, options, timeout=timeout)
