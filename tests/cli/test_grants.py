"""What `smena db grant` gives is enough for the role's part, all of it is needed, and nothing more is given."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from smena import Smena as App
from smena._sql import statement
from smena.cli.grants import MAY, grants

STATEMENTS = {
    part: sorted(f"{part}/{entry.name[:-4]}" for entry in resources.files("smena._sql").joinpath(part).iterdir())
    for part in ("jobs", "workers", "duties", "floor", "people")
}
ENQUEUE = ["jobs/drop_stale_holds", "jobs/enqueue", "jobs/enqueue_unique", "jobs/make_lane", "jobs/unique_holds"]
LOOK = ["workers/installation"]
OPERATE = ["people/cancel", "people/delete", "people/pause", "people/requeue", "people/resume"]
PARTS = {
    "enqueue": [*ENQUEUE, *LOOK],
    "work": [
        *(name for part in ("jobs", "workers", "duties", "floor") for name in STATEMENTS[part] if name not in ENQUEUE)
    ],
    "read": [*(name for name in STATEMENTS["people"] if name not in (*OPERATE, "people/adopt")), *LOOK],
    "operate": [*(name for name in STATEMENTS["people"] if name != "people/adopt"), *LOOK],
}


class Role:
    """A role of the test's own, and a connection as this role."""

    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        self.dsn = make_conninfo(dsn, user=name, password=name)
        self.connection = psycopg.connect(self.dsn, autocommit=True)

    def run(self, query: str, *values: Any) -> list[Any]:
        cursor = self.connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def role(database: str) -> Iterator[Callable[..., Role]]:
    made: list[Role] = []
    with psycopg.connect(database, autocommit=True) as owner:

        def make(*may: str) -> Role:
            name = f"smena_test_{secrets.token_hex(6)}"
            owner.execute(f"create role {name} login password '{name}'")
            if may:
                owner.execute(grants(name, may, "smena").encode())
            made.append(Role(name, database))
            return made[-1]

        yield make
        for one in made:
            one.connection.close()
            owner.execute(f"drop owned by {one.name}")
            owner.execute(f"drop role {one.name}")


def may_run(connection: psycopg.Connection[Any], name: str) -> bool:
    """Whether the role may run a statement. Planning it without running it checks tables and functions."""
    found = statement(name)
    word = found.numbered.split()[0].lower()
    if word not in ("select", "with", "insert", "update", "delete", "lock"):
        return True  # savepoints and the like
    prefix = "" if word == "lock" else "explain "
    try:
        with connection.transaction(force_rollback=True), psycopg.RawCursor(connection) as cursor:
            cursor.execute((prefix + found.numbered).encode(), [None] * len(found.names))
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


@pytest.mark.parametrize("may", MAY)
def test_role_may_run_every_statement_of_its_part(may: str, role: Callable[..., Role]) -> None:
    one = role(may)
    assert [] == [name for name in PARTS[may] if not may_run(one.connection, name)]


@pytest.mark.parametrize("may", ["enqueue", "work", "read"])
def test_every_right_is_needed(may: str, database: str, role: Callable[..., Role]) -> None:
    one = role(may)
    idle = []
    with psycopg.connect(database) as owner:
        for line in grants(one.name, [may], "smena").splitlines():
            # Functions and sequences are looked at when they are called, which planning does not do, and migrations
            # and the audit are read by the command line and by people, not by a statement.
            if not line.startswith("grant") or any(word in line for word in _NOT_PLANNED):
                continue
            with owner.transaction(force_rollback=True):
                taken = line.replace("grant ", "revoke ", 1).replace(f" to {_quoted(one)};", f" from {_quoted(one)}")
                owner.execute(taken.encode())
                owner.execute(f"set local role {one.name}".encode())
                if all(may_run(owner, name) for name in PARTS[may]):
                    idle.append(line)
    assert [] == idle


_NOT_PLANNED = (" function ", " sequence ", ".migrations ", ".audit ")


def _quoted(one: Role) -> str:
    return f'"{one.name}"'


ENQUEUER_MAY_NOT = [
    "select args from smena.job",
    "select * from smena.jobs",
    "select * from smena.workers",
    "select * from smena.audit",
    "update smena.job set state = 'd'",
    "delete from smena.job",
    "delete from smena.queues",
    "update smena.queues set paused_at = now()",
    "update smena.installation set id = gen_random_uuid()",
    "select setval('smena.pos_seq', 1)",
    "select smena.cancel(1)",
    "select smena.requeue(1)",
    "select smena.delete_job(1)",
    "select smena.drop_segment(1000000, '0 s')",
    "select smena.supply_segments(100)",
    "select smena.leave_segment('0 s')",
    "create table smena.mine (a int)",
]
READER_MAY_NOT = [
    *ENQUEUER_MAY_NOT[4:],
    "insert into smena.job (lane, queue, pos, id, state, task, args, max_attempts) values (1,1,1,1,'r','t','{}',1)",
    "select nextval('smena.pos_seq')",
    "update smena.jobs set state = 'cancelled'",
    "insert into smena.audit (action) values ('x')",
]
WORKER_MAY_NOT = [
    "select smena.requeue(1)",
    "delete from smena.job",
    "delete from smena.attempts",
    "select * from smena.audit",
    "insert into smena.audit (action) values ('x')",
    "update smena.queues set paused_at = now()",
    "update smena.installation set id = gen_random_uuid()",
    "insert into smena.job (lane, queue, pos, id, state, task, args, max_attempts) values (1,1,1,1,'r','t','{}',1)",
    "drop table smena.job",
    "create table smena.mine (a int)",
]
OPERATOR_MAY_NOT = [
    "insert into smena.audit (action, actor) values ('x', 'somebody else')",
    "delete from smena.audit",
    "update smena.audit set actor = 'somebody else'",
    "update smena.queues set name = 'x'",
    "insert into smena.job (lane, queue, pos, id, state, task, args, max_attempts) values (1,1,1,1,'r','t','{}',1)",
    "update smena.installation set id = gen_random_uuid()",
    "select smena.drop_segment(1000000, '0 s')",
    "create table smena.mine (a int)",
]


@pytest.mark.parametrize(
    ("may", "statements"),
    [
        ("enqueue", ENQUEUER_MAY_NOT),
        ("read", READER_MAY_NOT),
        ("work", WORKER_MAY_NOT),
        ("operate", OPERATOR_MAY_NOT),
    ],
)
def test_role_may_do_nothing_more(may: str, statements: list[str], role: Callable[..., Role], stock: Any) -> None:
    stock.put("failed")
    one = role(may)
    allowed = []
    for query in statements:
        try:
            one.run(query)
        except psycopg.errors.InsufficientPrivilege:
            continue
        allowed.append(query)
    assert [] == allowed


def test_enqueuer_stores_jobs_with_keys_in_a_new_queue(role: Callable[..., Role], stock: Any) -> None:
    app = App(role("enqueue").dsn)
    try:

        @app.task(queue="brand-new", unique_key="one")
        def charge(purchase: int) -> None: ...

        first = charge.enqueue(1)
        assert (True, False) == (first.created, charge.enqueue(2).created)
        stock.sql("update smena.job set state = 'd', pos = id where id = %s", first.id)
        assert charge.enqueue(3).created
        assert charge.using(order_key="k", unique_key=None, run_in=60).enqueue(4).created is False
    finally:
        app.close()


def test_worker_role_works_with_all_duties(
    role: Callable[..., Role], stock: Any, module: Callable[[str, str], str], here: Path
) -> None:
    module(
        "roleshop",
        "from smena import OutcomeUnknown, Permanent, Retry, Smena, Snooze, Transient, current_job\n"
        "app = Smena()\n"
        "@app.task(retry=Retry(attempts=2, first=0), repeat=False)\n"
        "def careful(n: int) -> int: return n\n"
        "@app.task(retry=Retry(attempts=2, first=0))\n"
        "def work(n: int) -> int:\n"
        "    if n == 1: raise Permanent()\n"
        "    if n == 2: raise Transient()\n"
        "    if n == 3: raise OutcomeUnknown()\n"
        "    if n == 4 and current_job().attempt == 1: raise ValueError\n"
        "    if n == 5: work.using(queue='other').enqueue(6)\n"
        "    return n\n",
    )
    one = role("enqueue", "work")
    script = (
        "from roleshop import *\n"
        "work.enqueue_many([(n,) for n in range(6)])\n"
        "work.using(order_key='k').enqueue_many([(7,), (8,)])\n"
        "work.using(unique_key='k').enqueue(9)\n"
        "careful.enqueue(10)\n"
        "app.close()\n"
    )
    environment = {**os.environ, "SMENA_DSN": one.dsn, "SMENA_APP": "roleshop:app"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, cwd=here)
    worked = subprocess.run(
        [sys.executable, "-m", "smena", "worker", "--until-empty"],
        env=environment,
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert 1 == worked.returncode, worked.stderr
    for word in ("duty.failed", "database.lost", "permission denied"):
        assert word not in worked.stderr, worked.stderr
    states = stock.sql("select (args->>'n')::int, state from smena.jobs order by 1")
    wanted = {1: "failed", 2: "failed", 3: "unknown"}
    assert [(n, wanted.get(n, "done")) for n in range(11)] == states


def test_operator_requeues_cancels_deletes_corrects_and_pauses(role: Callable[..., Role], stock: Any) -> None:
    one = role("operate")
    failed = stock.put("failed", unique_key="k", order_key="o")
    assert [("requeued",)] == one.run("select smena.requeue(%s, 'because')", failed)
    ready, running, old, late = stock.put("ready"), stock.put("running"), stock.put("failed"), stock.put("scheduled")
    assert [("cancelled",)] == one.run("select smena.cancel(%s)", ready)
    assert [("requested",)] == one.run("select smena.cancel(%s)", running)
    assert [("deleted",)] == one.run("select smena.delete_job(%s)", old)
    one.run("update smena.jobs set priority = 7, args = '{}' where id = %s", late)
    assert 7 == stock.one("select priority from smena.jobs where id = %s", late)
    one.run("delete from smena.jobs where id = %s", ready)
    assert stock.state(ready) is None
    one.run("update smena.queues set paused_at = now(), paused_by = session_user, pause_reason = 'x'")
    assert [(one.name,)] == stock.sql("select distinct actor from smena.audit")


def test_whole_command_line_reads_and_operates_under_the_operators_role(
    role: Callable[..., Role], stock: Any, smena: Any
) -> None:
    dsn = role("operate").dsn
    one, two = stock.put("failed"), stock.put("failed")
    stock.worker()
    stock.count()
    for command in (["job", "list"], ["job", "show", one], ["queue", "list"], ["worker", "list"], ["db", "status"]):
        smena(*command, "--dsn", dsn)
    smena("job", "requeue", one, two, "--yes", "--dsn", dsn)
    smena("job", "cancel", one, "--dsn", dsn)
    smena("job", "delete", one, "--dsn", dsn)
    smena("queue", "pause", "payments", "--dsn", dsn)
    smena("queue", "resume", "payments", "--dsn", dsn)


def test_role_without_the_right_is_told_how_to_get_it(role: Callable[..., Role], stock: Any, smena: Any) -> None:
    result = smena("queue", "pause", "payments", "--dsn", role("read").dsn, code=1)
    assert "permission denied" in result.stderr
    assert "smena db grant" in result.stderr


def test_grants_hold_in_another_schema(smena: Any, role: Callable[..., Role], database: str) -> None:
    one = role()
    smena("db", "migrate", "--schema", "other")
    printed = smena("db", "grant", one.name, "--enqueue", "--operate", "--schema", "other").stdout
    assert "smena." not in printed.replace('"other".', "")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(printed.encode())
    app = App(one.dsn, schema="other")
    try:
        app.task(name="t")(lambda: None).enqueue()
    finally:
        app.close()
    assert [1] == smena.ids("--dsn", one.dsn, "--schema", "other")


def test_grant_prints_without_a_database_and_needs_to_know_what_for(smena: Any) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    assert 'to "a ""b""";' in smena("db", "grant", 'a "b"', "--read", "--dsn", nowhere).stdout
    assert "--enqueue, --work, --read, --operate" in smena("db", "grant", "shop", code=2).stderr


def test_apply_grants_at_once(smena: Any, role: Callable[..., Role], stock: Any) -> None:
    one = role()
    stock.put("ready")
    smena("db", "grant", one.name, "--read", "--apply")
    assert [(1,)] == one.run("select count(*) from smena.jobs")
