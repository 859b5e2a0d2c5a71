"""The folder of one embedded server: what is in it, and whether it can be used at all."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from smena.embedded.complaints import ELSEWHERE, about
from smena.errors import EmbeddedError


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths of one server. Only `data` belongs to PostgreSQL."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Self:
        return cls(path.expanduser().absolute())

    @property
    def door(self) -> Path:
        """Held exclusively by the one process that starts, joins, leaves or stops the server."""
        return self.path / "lock"

    @property
    def users(self) -> Path:
        """Held in share by everybody who uses the server."""
        return self.path / "users"

    @property
    def alive(self) -> Path:
        """Held by the server itself, and by initdb, as long as any of their processes lives."""
        return self.path / "alive"

    @property
    def data(self) -> Path:
        """The cluster; it appears complete or not at all."""
        return self.path / "data"

    @property
    def unfinished(self) -> Path:
        """The cluster while it is made; worth nothing once its maker is dead."""
        return self.path / "data.new"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    def prepare(self) -> None:
        """Makes the folder, or refuses one that is not for us."""
        with about(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner, names = self.path.stat().st_uid, {entry.name for entry in self.path.iterdir()}
        if owner != os.geteuid():
            # Also for root: it would leave files that the owner can no longer use.
            raise EmbeddedError(
                f"{self.path} belongs to {_user(owner)}, and this process runs as {_user(os.geteuid())}: "
                f"run it as {_user(owner)}, or {ELSEWHERE}"
            )
        if "PG_VERSION" in names:
            raise EmbeddedError(
                f"{self.path} is the data directory of a PostgreSQL that Smena did not make: connect to that server "
                f"with SMENA_DSN, or {ELSEWHERE}"
            )
        if names and self.door.name not in names:
            raise EmbeddedError(f"{self.path} is in use for something else: it is not empty; {ELSEWHERE}")

    def major(self) -> str | None:
        """The major version of the data, `None` before there is any."""
        if not self.data.exists():
            return None
        try:
            return (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise EmbeddedError(
                f"{self.data} is damaged: it has no PG_VERSION. Restore it, or delete {self.path} to start empty"
            ) from None

    def password(self) -> str:
        """The server's only password; whoever can read the folder may connect."""
        try:
            return (self.path / "password").read_text().strip()
        except FileNotFoundError:
            raise EmbeddedError(
                f"{self.path / 'password'} is missing, without which nobody can connect: restore it, "
                f"or delete {self.path} to start empty"
            ) from None

    def keep_password(self, password: str) -> None:
        self._write("password", password + "\n")

    def running_settings(self) -> dict[str, str] | None:
        """What the server was last started with."""
        try:
            loaded: dict[str, str] = json.loads((self.path / "settings.json").read_text())
        except FileNotFoundError:
            return None
        return loaded

    def keep_running_settings(self, settings: dict[str, str]) -> None:
        self._write("settings.json", json.dumps(settings, indent=1) + "\n")

    def sync(self) -> None:
        """Makes renames in the folder outlive the machine."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write(self, name: str, text: str) -> None:
        # Renamed into place: a reader, or the next start after a kill, never sees half a file.
        new = self.path / f"{name}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / name)


def default_folder() -> Path:
    """`postgresql` in SMENA_DATA_DIR, else in `smena` of the user's data folder."""
    if given := os.environ.get("SMENA_DATA_DIR"):
        return Path(given) / "postgresql"
    # The XDG rules: a relative path is invalid and ignored.
    shared = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not shared.is_absolute():
        try:
            shared = Path.home() / ".local" / "share"
        except RuntimeError:
            raise EmbeddedError("this user has no home folder to keep data in: set SMENA_DATA_DIR") from None
    return shared / "smena" / "postgresql"


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
