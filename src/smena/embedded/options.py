"""What a server is started with, and whether a running one will do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from smena.errors import EmbeddedError

_OURS = {
    "port": "Smena chooses it",
    "listen_addresses": "Smena chooses it",
    "data_directory": "use data_dir",
    "fsync": "use durable",
    "max_connections": "use max_connections",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The wishes of one process."""

    durable: bool = True
    max_connections: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.settings:
            if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
                raise EmbeddedError(f"settings has {name!r}, which is not the name of a PostgreSQL setting")
            if name.lower() in _OURS:
                raise EmbeddedError(f"settings cannot set {name!r}: {_OURS[name.lower()]}")

    def for_start(self) -> dict[str, str]:
        """Every setting of a server that this process starts."""
        return {
            "shared_buffers": "128MB",
            "max_connections": str(self.max_connections or 200),
            "fsync": "on" if self.durable else "off",
            # The log goes to standard error, which is a file in the folder.
            "log_destination": "stderr",
            "logging_collector": "off",
            # One way in, with the password: no socket, so no limit on the length of the path.
            "unix_socket_directories": "",
            **self.settings,
        }

    def check(self, running: Mapping[str, str], folder: Path) -> None:
        """Refuses a running server that was started with less than is asked for here."""
        for name, wanted, enough in self._wishes(running):
            if not enough:
                raise EmbeddedError(
                    f"the embedded PostgreSQL in {folder} already runs with {name} = {running.get(name, 'default')}, "
                    f"and this process asks for {wanted}: ask for the same, use another data_dir, or end the "
                    "processes that use it"
                )

    def _wishes(self, running: Mapping[str, str]) -> list[tuple[str, str, bool]]:
        wishes = [(name, value, running.get(name) == value) for name, value in self.settings.items()]
        if self.durable:
            wishes.append(("fsync", "on (pass durable=False if losing data is fine)", running.get("fsync") != "off"))
        if self.max_connections is not None:
            enough = int(running.get("max_connections", "100")) >= self.max_connections
            wishes.append(("max_connections", str(self.max_connections), enough))
        return wishes
