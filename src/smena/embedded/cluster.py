"""Making a cluster: whole, or not at all.

Everything is made in `data.new` and renamed to `data`. The makers hold the `alive` lock, so that initdb, which outlives
a killed parent for a moment, is never disturbed by the next one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from smena.embedded.account import Account
from smena.embedded.binaries import Binaries
from smena.embedded.complaints import about, refusal
from smena.embedded.folder import Folder
from smena.embedded.locks import FileLock

USER = DATABASE = "smena"

# `builtin` needs no locale of the system and sorts the same everywhere. Cleaning is ours, after the disk was looked at.
_INITDB = f"""--username={USER} --auth=reject --encoding=UTF8 --locale=C
    --locale-provider=builtin --builtin-locale=C.UTF-8 --no-instructions --no-clean""".split()

_HBA = """# Written by Smena: one way in, over loopback with the password that is kept next to this directory.
host all all 127.0.0.1/32 scram-sha-256
"""


def make_cluster(folder: Folder, binaries: Binaries, account: Account, alive: FileLock, *, durable: bool) -> None:
    """Makes `folder.data`, with one user, one database and one password."""
    new = folder.unfinished
    with about(folder.path):
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(mode=0o700)
        os.chown(new, account.uid, account.gid)
    try:
        _make(folder, binaries, account, alive, durable=durable)
    except BaseException:
        # A full disk is the likely reason, so give back what was taken. A failure here would hide the real one.
        shutil.rmtree(new, ignore_errors=True)
        raise


def _make(folder: Folder, binaries: Binaries, account: Account, alive: FileLock, *, durable: bool) -> None:
    new = folder.unfinished
    where = ["-D", account.name_of(new)]
    no_sync = [] if durable else ["--no-sync"]
    _run([binaries.program("initdb"), *where, *_INITDB, *no_sync], "", folder, account, alive, within=new)
    password = secrets.token_urlsafe(24)
    # In single-user mode, before anybody can connect: there is no moment with another password or none.
    # The iterations of SCRAM protect weak passwords, and cost each connection time; this password is 192 random bits.
    settings = ["-c", "exit_on_error=on", "-c", "scram_iterations=1", "-c", f"fsync={'on' if durable else 'off'}"]
    _run(
        [binaries.program("postgres"), "--single", "-j", *where, *settings, "template1"],
        f"ALTER ROLE {USER} PASSWORD '{password}';\n\nCREATE DATABASE {DATABASE};\n\n",
        folder,
        account,
        alive,
        within=new,
    )
    with about(folder.path):
        _write_durably(new / "pg_hba.conf", _HBA)
        folder.keep_password(password)
        new.rename(folder.data)
        folder.sync()


def sync_cluster(folder: Folder, binaries: Binaries, account: Account, alive: FileLock) -> None:
    """Writes to the disk what a server without fsync left in memory, so that the next one may promise durability."""
    command = [binaries.program("initdb"), "--sync-only", "-D", account.name_of(folder.data)]
    _run(command, "", folder, account, alive, within=folder.data)


def _run(command: list[str], script: str, folder: Folder, account: Account, alive: FileLock, *, within: Path) -> None:
    with about(folder.path):
        ran = subprocess.run(
            command,
            input=script,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[alive.descriptor()],
            **account.becoming(within),
        )
    if ran.returncode != 0:
        raise refusal("prepare", folder.path, ran.stdout)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
