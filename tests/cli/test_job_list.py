"""`smena job list`: what it lists, in which order, and how it shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smena._ops import listing
from smena.jobs import JobState


def test_newest_job_comes_first(stock: Any, smena: Any) -> None:
    ids = [stock.put(state) for state in JobState]
    assert ids[::-1] == smena.ids()


@pytest.mark.parametrize("state", list(JobState))
def test_state_lists_the_jobs_in_it_and_no_other(state: str, stock: Any, smena: Any) -> None:
    for _ in range(2):
        for other in JobState:
            stock.put(other)
    wanted = stock.sql("select id from smena.jobs where state = %s order by id desc", state)
    assert [row[0] for row in wanted] == smena.ids("--state", state)
    assert 2 == len(wanted)


def test_several_states_are_listed_in_one_order(stock: Any, smena: Any) -> None:
    ids = [stock.put(state) for state in ("failed", "ready", "running", "scheduled", "failed", "done", "ready")]
    ready, failed = [ids[6], ids[1]], [ids[4], ids[0]]
    assert sorted([*ready, *failed, ids[2]], reverse=True) == smena.ids("--state", "failed,ready,running")
    assert sorted([*failed, ids[5]], reverse=True) == smena.ids("--state", "failed", "--state", "done")


def test_all_filters_must_fit(stock: Any, smena: Any) -> None:
    wanted = stock.put("failed", queue="mail", task="send", kind="EXTERNAL_5XX")
    stock.put("failed", queue="mail", task="send", kind="ERROR")
    stock.put("failed", queue="mail", task="print", kind="EXTERNAL_5XX")
    stock.put("failed", queue="post", task="send", kind="EXTERNAL_5XX")
    stock.put("unknown", queue="mail", task="send", kind="EXTERNAL_5XX")
    options = ["--queue", "mail", "--task", "send,other", "--kind", "EXTERNAL_5XX"]
    assert [wanted] == smena.ids("--state", "failed", *options)
    assert 2 == len(smena.ids(*options))


@pytest.mark.parametrize("state", ["ready", "running", "failed", "done"])
def test_task_and_kind_filter_every_way_in(state: str, stock: Any, smena: Any) -> None:
    wanted = stock.put(state, task="a", kind="K")
    stock.put(state, task="b", kind="K")
    stock.put(state, task="a", kind="L")
    assert ([] if state == "done" else [wanted]) == smena.ids("--state", state, "--task", "a", "--kind", "K")


@pytest.mark.parametrize("options", [[], ["--state", "failed"], ["--state", "ready,failed"], ["--state", "running"]])
def test_pages_joined_are_the_whole_list(options: list[str], stock: Any, smena: Any) -> None:
    for state in ("failed", "ready", "running", "failed", "ready", "done", "failed"):
        stock.put(state)
    whole = smena.ids(*options)
    pages, cursor = [], []
    while True:
        page = smena.json("job", "list", "--limit", 2, *options, *cursor)
        pages.append([item["id"] for item in page["items"]])
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert whole == [id for page in pages for id in page]
    assert all(len(page) == 2 for page in pages[:-1])


def test_full_last_page_has_no_next(stock: Any, smena: Any) -> None:
    for _ in range(4):
        stock.put("done")
    assert smena.json("job", "list", "--limit", 4)["next"] is None


def test_rare_job_is_found_however_many_windows_away(stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "WINDOW", 3)
    rare = [stock.put("done", task="rare") for _ in range(2)]
    for _ in range(10):
        stock.put("done")
    assert rare[::-1] == smena.ids("--task", "rare")
    assert [] == smena.ids("--task", "never")


def test_long_backlog_is_listed_by_id_too(stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "READY_CAP", 2)
    monkeypatch.setattr(listing, "WINDOW", 2)
    ids = [stock.put("ready") for _ in range(5)]
    returned = ids[0]
    stock.sql(
        "update smena.job set pos = nextval('smena.pos_seq'), lane = smena.returned_lane(lane) where id = %s", returned
    )
    stock.put("done")
    assert ids[::-1] == smena.ids("--state", "ready")


def test_ready_jobs_below_the_floor_of_their_lane_do_not_exist(stock: Any, smena: Any) -> None:
    stock.put("done")
    ready = stock.put("ready")
    stock.sql("insert into smena.floors (lane, floor) select lane, pos - 1 from smena.job where id = %s", ready)
    assert [ready] == smena.ids("--state", "ready")


def test_json_items_are_the_columns_of_the_view(stock: Any, smena: Any) -> None:
    stock.put("failed", args={"amount": 0}, kind="ERROR")
    columns = stock.sql("select attname from pg_attribute where attrelid = 'smena.jobs'::regclass and attnum > 0")
    page = smena.json("job", "list")
    assert ["items", "next"] == list(page)
    assert {name for (name,) in columns} == set(page["items"][0])
    assert ["id", "queue", "task", "state", "priority"] == list(page["items"][0])[:5]


def test_numbers_keep_their_digits(stock: Any, smena: Any) -> None:
    stock.sql("select 1")
    id = stock.put("ready")
    exact = '{"amount": 0.10, "big": 123456789012345678901234567890.123456789, "count": 12345678901234567890123}'
    stock.sql("update smena.job set args = %s where id = %s", exact, id)
    for number in ("0.10", "123456789012345678901234567890.123456789", "12345678901234567890123"):
        assert number in smena("job", "list", "--json").stdout
        assert number in smena("job", "show", id).stdout


def test_empty_list_says_so_beside_the_answer(smena: Any) -> None:
    result = smena("job", "list")
    assert ("", "no jobs\n") == (result.stdout, result.stderr)
    assert {"items": [], "next": None} == smena.json("job", "list", "--state", "failed")


def test_limit_and_cursor_are_checked(bare: Any) -> None:
    for wrong in (["--limit", 0], ["--limit", 10_001], ["--cursor", "x"], ["--cursor", 0], ["--state", "gone"]):
        assert "Invalid value" in bare("job", "list", *wrong, code=2).stderr


LONG = "a_company.with_long_names.in_its_modules.payments.tasks.charge_the_customer_again"
SCRIPTS = ["支払い処理キュー", "תשלומים", "платежи-и-возвраты"]


def test_table_fits_80_columns_and_never_breaks_an_id(stock: Any, smena: Any) -> None:
    big = 9_000_000_000_000_000_000
    ids = [
        stock.put(state, queue=queue, task=LONG, kind="EXTERNAL_UNAVAILABLE") for queue in SCRIPTS for state in JobState
    ]
    stock.put("failed", task=LONG, kind="EXTERNAL_TIMEOUT", id=big, pos=-big)
    out = smena("job", "list", COLUMNS="80").stdout
    assert [] == [line for line in out.splitlines() if _cells(line) > 80]
    words = out.split()
    assert [] == [id for id in [*ids, big] if str(id) not in words]
    for part in (*JobState, "1/5"):
        assert part in words


def _cells(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


def test_pipe_loses_no_end_of_a_name(stock: Any, smena: Any) -> None:
    stock.put("failed", task=LONG, queue="q" * 100)
    out = smena("job", "list").stdout
    assert f"{'q' * 100}  {LONG}" in out
    assert 2 == len(out.splitlines())


def test_orders_to_the_terminal_are_shown_not_sent(stock: Any, smena: Any) -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202etxt"
    stock.put("failed", task=f"t{evil}", queue=f"q{evil}", kind=f"K{evil}", args={"a": evil})
    for output in (smena("job", "list").stdout, smena("job", "list", "--json").stdout):
        assert not set("\x1b\x07\x9b\u202e") & set(output)
    assert f"t{evil}" == smena.json("job", "list")["items"][0]["task"]
    assert "[red]" in smena("job", "show", stock.put("ready", task="[red]a[/red]")).stdout


def test_no_colours_without_a_terminal(stock: Any, smena: Any) -> None:
    stock.put("failed")
    assert "\x1b" not in smena("job", "list").output


def test_time_shown_is_the_one_that_matters_in_the_state(stock: Any, smena: Any) -> None:
    stock.put("scheduled")
    stock.sql("update smena.job set run_at = clock_timestamp() + interval '2 hours 1 minute'")
    stock.put("done")
    stock.sql("update smena.job set finished_at = clock_timestamp() - interval '3 days' where state = 'd'")
    lines = smena("job", "list").stdout.splitlines()
    assert "3 d ago" in lines[1]
    assert "in 2 h" in lines[2]


def test_list_does_not_change_the_store(stock: Any, smena: Any, database: str) -> None:
    stock.put("failed")
    smena("job", "list", PGOPTIONS="-c default_transaction_read_only=on")
    assert json.loads(smena("job", "list", "--json", PGOPTIONS="-c default_transaction_read_only=on").stdout)["items"]
