"""`smena job show`: everything that is known of one job."""

from __future__ import annotations

import json
from typing import Any

TRACEBACK = """Traceback (most recent call last):
  File "shop.py", line 8, in charge
    raise ValueError("no such purse")
ValueError: no such purse"""


def fail(stock: Any, **columns: Any) -> int:
    """A job that failed twice."""
    id = stock.put("failed", args={"purchase": 17, "note": "支払い"}, kind="ERROR", attempt=2, **columns)
    for attempt, outcome in ((1, "retried"), (2, "failed")):
        stock.sql(
            "insert into smena.attempts (job_id, attempt, outcome, kind, side, detail, worker, started_at)"
            " values (%s, %s, %s, 'ERROR', 'ours', %s, 'host:1:aaaa', clock_timestamp() - interval '1 s')",
            id,
            attempt,
            outcome,
            json.dumps({"type": "ValueError", "message": "no such purse", "traceback": TRACEBACK}),
        )
    return id


def test_every_column_of_the_view_is_shown(stock: Any, smena: Any) -> None:
    id = fail(stock, headers='{"trace": "abc"}', order_key="customer-1", result="[1, 2]")
    out = smena("job", "show", id).stdout
    columns = stock.sql("select attname from pg_attribute where attrelid = 'smena.jobs'::regclass and attnum > 0")
    shown = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert {name for (name,) in columns} - {"failure_detail"} <= shown
    for part in ('"purchase": 17', '"note": "支払い"', '"trace": "abc"', "customer-1"):
        assert part in out


def test_traceback_is_shown_line_by_line_and_the_message_not_twice(stock: Any, smena: Any) -> None:
    out = smena("job", "show", fail(stock)).stdout
    assert TRACEBACK in out
    before_history = out.split("attempts, newest first")[0]
    assert 2 == before_history.count("no such purse")  # in the line of code and in the last line


def test_history_has_every_attempt_newest_first(stock: Any, smena: Any) -> None:
    job = smena.json("job", "show", fail(stock))
    assert [(2, "failed"), (1, "retried")] == [(one["attempt"], one["outcome"]) for one in job["history"]]
    assert job["history_cut"] is False


def test_the_attempt_that_ended_in_done_is_part_of_the_history(stock: Any, smena: Any) -> None:
    id = stock.put("done", attempt=1)
    history = smena.json("job", "show", id)["history"]
    assert [(1, "done")] == [(one["attempt"], one["outcome"]) for one in history]
    assert "done" in smena("job", "show", id).stdout.split("attempts")[-1]


def test_long_history_is_cut_and_says_so(stock: Any, smena: Any) -> None:
    id = stock.put("scheduled")
    stock.sql(
        "insert into smena.attempts (job_id, attempt, outcome) select %s, n, 'snoozed' from generate_series(1, 101) n",
        id,
    )
    job = smena.json("job", "show", id)
    assert (100, True) == (len(job["history"]), job["history_cut"])
    assert "the last 100" in smena("job", "show", id).stdout


def test_times_are_exact_and_relative(stock: Any, smena: Any) -> None:
    id = stock.put("ready")
    moment = stock.one("select created_at from smena.jobs where id = %s", id)
    line = next(line for line in smena("job", "show", id).stdout.splitlines() if line.startswith("created_at"))
    assert f"{moment.astimezone():%Y-%m-%d %H:%M:%S %z} (" in line


def test_page_fits_80_columns_except_for_what_may_not_be_broken(stock: Any, smena: Any) -> None:
    out = smena("job", "show", fail(stock, task="a" * 150), COLUMNS="80").stdout
    assert [] == [line for line in out.splitlines() if len(line) > 80]
    assert "a" * 150 in "".join(out.split())


def test_orders_to_the_terminal_are_shown_not_sent(stock: Any, smena: Any) -> None:
    evil = "\x9b2J\u202e"
    id = stock.put("failed", args={evil: [evil]}, kind="ERROR", result=json.dumps(evil), order_key=evil)
    stock.sql(
        "insert into smena.attempts (job_id, attempt, outcome, kind, detail, worker)"
        " values (%s, 1, 'failed', 'ERROR', %s, %s)",
        id,
        json.dumps({"message": evil, "traceback": f"{evil}\n{evil}", evil: evil}),
        evil,
    )
    for output in (smena("job", "show", id).stdout, smena("job", "show", id, "--json").stdout):
        assert not set("\x1b\x9b\u202e") & set(output)
    assert {evil: [evil]} == smena.json("job", "show", id)["args"]


def test_detail_of_another_shape_is_shown_as_it_is(stock: Any, smena: Any) -> None:
    id = stock.put("failed", kind="ERROR")
    stock.sql(
        "insert into smena.attempts (job_id, attempt, outcome, kind, detail) values (%s, 1, 'x', 'ERROR', '[1]')", id
    )
    assert "[\n  1\n]" in smena("job", "show", id).stdout


def test_job_that_does_not_exist_ends_with_3(smena: Any) -> None:
    assert "no job 17" in smena("job", "show", 17, code=3).stderr
    assert "not a valid job id" in smena("job", "show", "x", code=2).stderr
