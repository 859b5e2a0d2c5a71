"""Who the server runs as. PostgreSQL refuses to run as root, so root lends it another account.

Root's folder stays closed to that account: the server is started *inside* its data directory and knows it as
`/proc/self/cwd`, so that it need not be able to walk there. Nothing has to be opened to other users.
"""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smena.errors import EmbeddedError

_LENT = ("postgres", "nobody")
# Nothing else reaches the server: our environment may hold secrets, and PG… variables mean other servers.
_PASSED = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    other: bool
    """Whether it is lent by root, and not this process's own."""

    def becoming(self, directory: Path | str) -> dict[str, Any]:
        """Arguments that make `subprocess` run a program as this account in `directory`."""
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ} | {"LC_ALL": "C"}
        # A session of its own: Ctrl-C in our terminal is for us.
        arguments: dict[str, Any] = {"cwd": directory, "env": environment, "start_new_session": True}
        if self.other:
            arguments |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return arguments

    def name_of(self, directory: Path) -> str:
        """How a program that was started in `directory` may call it."""
        return "/proc/self/cwd" if self.other and sys.platform == "linux" else str(directory)


def account_for(data: Path) -> Account:
    """The owner of the data; before there is any, this user, or the one that root lends."""
    me = os.geteuid()
    if data.exists():
        status = data.stat()
        if me == 0 and status.st_uid != 0:
            return Account(status.st_uid, status.st_gid, other=True)
        if me == 0 or status.st_uid != me:
            owner = _LENT[0] if me == 0 else me
            raise EmbeddedError(
                f"{data} belongs to uid {status.st_uid}, as which this process cannot run a server: "
                f"give it back (as root: `chown -R {owner} {data}`)"
            )
    if me != 0:
        return Account(me, os.getegid(), other=False)
    for name in _LENT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, other=True)
    raise EmbeddedError(
        f"PostgreSQL does not run as root, and this machine has none of the users {', '.join(_LENT)} to run it as: "
        "add one, run as an ordinary user, or set SMENA_DSN to a server of your own"
    )
