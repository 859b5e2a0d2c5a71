"""The server process: starting it, finding it, stopping it.

It inherits the locked descriptor of the `alive` file, and so do its own children. Hence "the lock can be taken" means,
with the kernel's word, that no process of the server is left, whatever `postmaster.pid` says; and a stale
`postmaster.pid`, even one whose number now belongs to another program, is known for what it is.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from smena.embedded.account import Account
from smena.embedded.binaries import Binaries
from smena.embedded.complaints import about
from smena.embedded.folder import Folder
from smena.embedded.locks import FileLock
from smena.embedded.waiting import Deadline
from smena.errors import EmbeddedError

# Shown by `ps` for all processes of the server.
_CLUSTER_NAME = "cluster_name=smena"
_PATIENCE = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What `postmaster.pid` says."""

    pid: int
    port: int
    status: str

    @classmethod
    def of(cls, folder: Folder) -> Self | None:
        """`None` when there is no file, or not all of it yet."""
        try:
            lines = (folder.data / "postmaster.pid").read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), lines[7].strip())
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def is_ours(self) -> bool:
        """Whether the process with the number is the server that took the port, as far as we can see from here.

        Told from its arguments: root in a container may not see the working directory of other users' processes.
        """
        import psutil  # type: ignore[import-untyped]  # Comes with the extra, so not at the top.

        try:
            return f"port={self.port}" in psutil.Process(self.pid).cmdline()
        except psutil.Error:
            return False


def launch(folder: Folder, binaries: Binaries, account: Account, alive: FileLock, settings: dict[str, str]) -> None:
    """Starts a server that holds `alive` and depends on nobody; returns at once, whether it lives or not."""
    _clear_stale(folder)
    arguments = [_CLUSTER_NAME, *(f"{name}={value}" for name, value in _with_port(settings).items())]
    options = [word for argument in arguments for word in ("-c", argument)]
    command = [binaries.program("postgres"), "-D", account.name_of(folder.data), *options]
    with about(folder.path):
        folder.keep_running_settings(settings)
        if folder.log.exists():
            folder.log.replace(folder.log.with_suffix(".log.1"))
        # It may hold statements: for the owner of the folder only.
        with open(os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as log:
            # This line also takes up the block in which the server's last words fit when the disk is full.
            print(f"Smena starts PostgreSQL {binaries.version}:", *command, file=log, flush=True)
            # The shell leaves the server to init and ends: it is nobody's child, and leaves nobody a zombie.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[alive.descriptor()],
                check=True,
                **account.becoming(folder.data),
            )


def stop(folder: Folder) -> None:
    """Stops the server if it runs: at once for its clients, and with a checkpoint."""
    alive = FileLock(folder.alive)
    for number, seconds in _PATIENCE:
        deadline = Deadline(seconds)
        if deadline.wait_for(partial(_tell, folder, alive, number)) and deadline.wait_for(alive.take):
            alive.release()
            return
    raise EmbeddedError(
        f"the embedded PostgreSQL in {folder.path} does not stop: end the process named in "
        f"{folder.data / 'postmaster.pid'}, in the container that started it if there are several"
    )


def _tell(folder: Folder, alive: FileLock, number: signal.Signals) -> bool:
    # First: without the lock it is not our server, and if it was, its number may be another program's by now.
    if alive.take():
        return True
    # A server that is just starting has no file yet.
    found = Postmaster.of(folder)
    if found is None or not found.is_ours():
        return False
    with suppress(ProcessLookupError):
        os.kill(found.pid, number)
    return True


def _clear_stale(folder: Folder) -> None:
    path = folder.data / "postmaster.pid"
    if not path.exists():
        return
    # PostgreSQL would refuse to start on an empty file, which a full disk leaves, and on one whose number some other
    # program of this user has now. A server that was started without our lock is the one thing to respect.
    first = path.read_text().partition("\n")[0].strip()
    if first.isdecimal() and _works_in(folder.data, int(first)):
        raise EmbeddedError(
            f"process {first} runs a PostgreSQL in {folder.data} that Smena did not start: stop it "
            f"(`kill -INT {first}`), or connect to it with SMENA_DSN"
        )
    path.unlink()


def _works_in(directory: Path, pid: int) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        try:
            return os.path.samefile(process.cwd(), directory)
        except psutil.AccessDenied:
            # Root in a container. A server of ours it is not, for those hold their locks; doubt any other.
            return process.name() == "postgres" and _CLUSTER_NAME not in process.cmdline()
    except (psutil.Error, OSError):
        return False


def _with_port(settings: dict[str, str]) -> dict[str, str]:
    # Somebody else may take the port before the server does; the caller then tries again.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return settings | {"listen_addresses": "127.0.0.1", "port": str(port)}
