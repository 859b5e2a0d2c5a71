"""`smena check`: what it finds, and that it writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from smena.database import masked

Module = Callable[[str, str], str]

SHOP = """
from smena import Retry, Smena
app = Smena(lease=12)

@app.task(queue="payments", retry=Retry(attempts=3, first=10, factor=2), timeout=30, aliases=["old.charge"])
def charge(purchase: int) -> None: ...

@app.task(name="mail.send", queue="mail", repeat=False)
async def send(to: str) -> None: ...
"""


@pytest.fixture
def app(module: Module) -> str:
    return f"{module('checked_shop', SHOP)}:app"


def test_sound_app_and_store_end_with_0(app: str, smena: Any) -> None:
    out = smena("check", "-A", app).stdout
    lines = [line.split("  ") for line in out.splitlines()]
    assert any("mail.send" == line[0] and "never repeated" in line for line in lines)
    assert "checked_shop.charge = old.charge" in out
    assert "3 attempts, pauses 10 … 20 s" in out
    assert "queues: mail, payments; lease 12 s" in out
    assert "is ready for this release" in out


def test_json_tells_the_same(app: str, smena: Any, database: str) -> None:
    answer = smena.json("check", "-A", app)
    assert (app, masked(database), "smena", 12, []) == tuple(
        answer[key] for key in ("app", "database", "schema", "lease", "problems")
    )
    assert ["mail", "payments"] == answer["queues"]
    send, charge = sorted(answer["tasks"], key=lambda task: str(task["queue"]))
    assert ("mail.send", False, True) == (send["name"], send["repeat"], send["async"])
    assert (["old.charge"], 30, 3) == (charge["aliases"], charge["timeout"], charge["retry"]["attempts"])


def test_nothing_is_written(app: str, smena: Any, stock: Any) -> None:
    stock.put("ready")
    counts = "select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_all_tables where schemaname = 'smena'"
    stock.sql("select pg_stat_force_next_flush()")
    before = stock.one(counts)
    smena("check", "-A", app)
    assert before == stock.one(counts)
    assert [] == stock.sql("select * from smena.audit")


def test_store_of_another_release_ends_with_4(app: str, smena: Any, stock: Any, empty_database: str) -> None:
    result = smena("check", "-A", app, "--dsn", empty_database, code=4)
    assert "smena db migrate" in result.stderr
    assert "mail.send" in result.stdout
    stock.sql("insert into smena.migrations (number, phase, name, checksum) values (9999, 'pre', 'future', 'x')")
    assert "upgrade smena" in smena("check", "-A", app, code=4).stderr
    answer = json.loads(smena("check", "-A", app, "--json", code=4).stdout)
    assert "upgrade smena" in answer["problems"][0]


def test_outdated_store_ends_with_4(app: str, smena: Any, stock: Any) -> None:
    stock.sql("delete from smena.migrations where number = (select max(number) from smena.migrations)")
    assert "smena db migrate" in smena("check", "-A", app, code=4).stderr


def test_copied_store_ends_with_4(app: str, smena: Any, stock: Any) -> None:
    stock.sql("update smena.installation set database_oid = 1")
    assert "smena db adopt" in smena("check", "-A", app, code=4).stderr
    assert "smena db adopt" in smena("worker", "-A", app, "--until-empty", code=4).stderr


def test_unreachable_store_ends_with_75(app: str, smena: Any) -> None:
    answer = json.loads(
        smena("check", "-A", app, "--json", code=75, SMENA_DSN="postgresql://u:s3cret@127.0.0.1:1/x").stdout
    )
    assert "cannot be reached" in answer["problems"][0]
    assert "s3cret" not in json.dumps(answer)


def test_app_without_tasks_ends_with_2(module: Module, smena: Any) -> None:
    module("idle_shop", "from smena import Smena\napp = Smena()")
    assert "has no tasks" in smena("check", "-A", "idle_shop:app", code=2).stderr
    assert "has no tasks" in smena("worker", "-A", "idle_shop:app", code=2).stderr


def test_without_a_dsn_no_server_is_started_for_a_look(app: str, smena: Any) -> None:
    answer = smena.json("check", "-A", app, SMENA_DSN="")
    assert answer["database"] is None
    assert "not looked at" in smena("check", "-A", app, SMENA_DSN="").stdout
