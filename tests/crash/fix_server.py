"""A PostgreSQL server that a test may kill, freeze, copy and promote."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from crash.fix_workers import Shop, open_shop
from smena import _migrations
from smena.embedded.account import account_for
from smena.embedded.binaries import installed

USER = "smena"


class PrivateServer:
    """A cluster of its own, with the same port for ever. Root lends it another account, as the embedded one has.

    Its folder lies where that account can go, unlike pytest's.
    """

    def __init__(self, programs: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="smena-server-"))
        self.port = _free_port()
        self._account = account_for(self.folder / "data")
        self._programs = programs or installed(self._account).path / "bin"
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._deaf: list[psutil.Process] = []
        os.chown(self.folder, self._account.uid, self._account.gid)

    def make(self) -> None:
        """A new, empty cluster."""
        self.run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def run(self, program: str, *arguments: str) -> str:
        """Runs one of PostgreSQL's programs inside the folder and returns what it wrote."""
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **self._account.becoming(self.folder),
        )
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{program}: {said}"
        return said

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def dsn(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={database}"

    def database(self, name: str) -> str:
        """Makes a migrated database and returns its DSN."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        _migrations.migrate(self.dsn(name))
        return self.dsn(name)

    def start(self) -> None:
        """Starts, after a crash too, and waits until the server takes connections."""
        until = time.monotonic() + 60
        while True:
            if self._postmaster is None or self._postmaster.poll() is not None:
                # The processes of a killed postmaster go by themselves, and until then a new one does not start.
                self._postmaster = self._launch()
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            if time.monotonic() > until:
                pytest.fail(f"the server does not start: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
            "max_connections": "150",
            "hot_standby_feedback": "on",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / "postgres"), "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._account.becoming(self.folder),
            )

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def crash(self, number: int = signal.SIGQUIT) -> None:
        """Ends the server without a checkpoint: SIGQUIT is an immediate stop, SIGKILL leaves not even that."""
        assert self._postmaster is not None
        self._postmaster.send_signal(number)
        self._postmaster.wait(30)

    def freeze(self) -> list[psutil.Process]:
        """Stops every process of the server where it is; `thaw` lets them go on."""
        assert self._postmaster is not None
        postmaster = psutil.Process(self._postmaster.pid)
        postmaster.suspend()  # first, so that it makes no more children
        frozen = [postmaster, *postmaster.children()]
        for process in frozen[1:]:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        return frozen

    def thaw(self, frozen: list[psutil.Process]) -> None:
        for process in reversed(frozen):
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def standby(self) -> PrivateServer:
        """A copy that follows this server, asynchronously."""
        copy = PrivateServer(self._programs)
        copy.run("pg_basebackup", "-D", copy._data, "-R", "-X", "stream", "-c", "fast", "-d", self.dsn())
        copy.start()
        return copy

    def stop_receiving(self) -> None:
        """From now on a standby sees nothing of what is committed on its primary."""
        assert self._postmaster is not None
        receivers = [
            process
            for process in psutil.Process(self._postmaster.pid).children()
            if "walreceiver" in " ".join(process.cmdline())
        ]
        assert receivers, "the standby does not follow"
        for process in receivers:
            process.suspend()
        self._deaf = receivers

    def promote(self) -> None:
        """Makes a standby a server of its own."""
        for process in self._deaf:
            with suppress(psutil.NoSuchProcess):
                process.kill()  # what it was sent while it stood still is lost
                process.resume()
        self.run("pg_ctl", "promote", "-D", self._data, "-w", "-t", "60")

    def end(self) -> None:
        if self._postmaster is not None and self._postmaster.poll() is None:
            with suppress(psutil.NoSuchProcess):
                self.thaw([psutil.Process(self._postmaster.pid)])
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server_programs(server_dsn: str) -> Path | None:
    """Programs of the same release as the tests' server; None for those of the embedded one."""
    if "SMENA_TEST_DSN" not in os.environ:
        return None
    with psycopg.connect(server_dsn) as connection:
        major = connection.info.server_version // 10_000
    programs = Path(f"/usr/lib/postgresql/{major}/bin")
    return programs if programs.exists() else None


@pytest.fixture(scope="session")
def private_server(server_programs: Path | None) -> Iterator[PrivateServer]:
    """A running server of the crash tests' own."""
    server = PrivateServer(server_programs)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture
def away_shop(private_server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop on that server, in a database of its own."""
    with open_shop(private_server.database(f"shop_{time.monotonic_ns()}"), tmp_path, monkeypatch) as shop:
        yield shop


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
