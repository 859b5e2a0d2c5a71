"""`smena job requeue | cancel | delete`: what they touch, what they ask first, and how they end."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from smena.cli import bulk


def test_one_job_is_requeued_without_a_question(stock: Any, smena: Any) -> None:
    id = stock.put("failed")
    assert "1 requeued\n" == smena("job", "requeue", id, "--reason", "provider is back").stdout
    assert "ready" == stock.state(id)
    audit = stock.sql("select action, job_id, reason, actor = session_user from smena.audit")
    assert [("requeue", id, "provider is back", True)] == audit


def test_retry_is_another_word_for_requeue(stock: Any, smena: Any) -> None:
    id = stock.put("failed")
    smena("job", "retry", id)
    assert "ready" == stock.state(id)


@pytest.mark.parametrize("verb", ["requeue", "cancel", "delete"])
def test_more_than_one_job_is_shown_and_not_touched_without_yes(verb: str, stock: Any, smena: Any) -> None:
    ids = [stock.put("failed", queue=queue) for queue in ("payments", "mail", "payments")]
    before = stock.sql("select * from smena.job order by id")
    for what in (ids, ["--state", "failed"]):
        result = smena("job", verb, *what, code=2)
        assert "3 jobs" in result.stdout
        assert ["2", "payments", "failed", "shop.charge"] in [line.split() for line in result.stdout.splitlines()]
        assert "add --yes" in result.stderr
    assert before == stock.sql("select * from smena.job order by id")
    assert [] == stock.sql("select * from smena.audit")


def test_preview_shows_ten_jobs_and_counts_all(stock: Any, smena: Any) -> None:
    for _ in range(12):
        stock.put("failed")
    out = smena("job", "requeue", "--queue", "payments", code=2).stdout
    assert "12 jobs" in out
    assert 10 == sum(line.split()[1:2] == ["failed"] for line in out.splitlines())


def test_with_yes_it_is_done_to_all(stock: Any, smena: Any) -> None:
    ids = [stock.put("failed") for _ in range(3)]
    assert "3 requeued" in smena("job", "requeue", "--state", "failed", "--yes").stdout
    assert ["ready"] * 3 == stock.states(*ids)


def test_requeued_jobs_keep_their_order(stock: Any, smena: Any) -> None:
    ids = [stock.put("failed") for _ in range(5)]
    smena("job", "requeue", "--state", "failed", "--yes")
    assert ids == [row[0] for row in stock.sql("select id from smena.job where state = 'r' order by pos")]


@pytest.mark.parametrize(("answer", "state", "code"), [("y", "ready", 0), ("n", "failed", 2)])
def test_on_a_terminal_it_asks(
    answer: str, state: str, code: int, stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "on_terminal", lambda: True)
    ids = [stock.put("failed") for _ in range(2)]
    result = smena("job", "requeue", *ids, input=f"{answer}\n", code=code)
    assert "Requeue these 2 jobs?" in result.stderr
    assert [state] * 2 == stock.states(*ids)


def test_refused_job_is_told_and_does_not_stop_the_rest(stock: Any, smena: Any) -> None:
    ids = [stock.put(state) for state in ("failed", "ready", "unknown", "done", "failed")]
    result = smena("job", "requeue", *ids, "--yes", code=1)
    assert "2 requeued, 3 refused" in result.stdout
    for words in (f"job {ids[1]} is ready", f"job {ids[2]} is unknown", "--new-key"):
        assert words in result.stderr
    assert ["ready", "ready", "unknown", "done", "ready"] == stock.states(*ids)


def test_missing_job_ends_with_3_and_does_not_stop_the_rest(stock: Any, smena: Any) -> None:
    ids = [stock.put("failed"), stock.put("failed")]
    result = smena("job", "requeue", ids[0], 4711, ids[1], "--yes", code=3)
    assert "2 requeued, 1 not found" in result.stdout
    assert "4711" in result.stderr
    assert "1 not found" in smena("job", "delete", 4711, code=3).stdout


def test_id_given_twice_is_one_job(stock: Any, smena: Any) -> None:
    id = stock.put("failed")
    assert "1 requeued\n" == smena("job", "requeue", id, id).stdout


@pytest.mark.parametrize("args", [[], ["1", "--queue", "payments"]])
def test_ids_or_filters_must_say_which_jobs(args: list[str], bare: Any) -> None:
    assert "ids or filters" in bare("job", "delete", *args, code=2).stderr


def test_nothing_fits_is_no_failure(smena: Any) -> None:
    assert "no jobs fit" in smena("job", "delete", "--queue", "nobody").stderr


@pytest.mark.parametrize(
    ("verb", "touched"),
    [
        ("requeue", {"failed"}),
        ("cancel", {"scheduled", "blocked", "ready", "running"}),
        ("delete", {"failed", "cancelled"}),
    ],
)
def test_filters_without_a_state_mean_the_jobs_that_the_action_is_for(
    verb: str, touched: set[str], stock: Any, smena: Any
) -> None:
    ids = {
        state: stock.put(state) for state in ("scheduled", "blocked", "ready", "running", "done", "failed", "unknown")
    }
    ids["cancelled"] = stock.put("cancelled")
    smena("job", verb, "--queue", "payments", "--yes")
    audited = {row[0] for row in stock.sql("select job_id from smena.audit")}
    assert {ids[state] for state in touched} == audited


def test_running_job_is_asked_to_stop(stock: Any, smena: Any) -> None:
    id = stock.put("running")
    assert "1 running and asked to stop" in smena("job", "cancel", id, "--reason", "wrong").stdout
    assert [(id, "wrong")] == stock.sql("select job_id, reason from smena.cancel_requests")


def test_new_key_repeats_a_done_job_under_another_key(stock: Any, smena: Any) -> None:
    id = stock.put("done")
    before = smena.json("job", "show", id)["idempotency_key"]
    smena("job", "requeue", id, code=1)
    smena("job", "requeue", id, "--new-key", "--reason", "refunded")
    after = smena.json("job", "show", id)
    assert ("ready", 1) == (after["state"], after["requeues"])
    assert before != after["idempotency_key"]


def test_requeue_keeps_the_key_otherwise(stock: Any, smena: Any) -> None:
    id = stock.put("failed")
    before = smena.json("job", "show", id)["idempotency_key"]
    smena("job", "requeue", id)
    assert before == smena.json("job", "show", id)["idempotency_key"]


def test_deleted_job_is_gone_with_its_history(stock: Any, smena: Any) -> None:
    id = stock.put("failed")
    stock.sql("insert into smena.attempts (job_id, attempt, outcome) values (%s, 1, 'failed')", id)
    smena("job", "delete", id)
    assert (None, 0) == (stock.state(id), stock.one("select count(*) from smena.attempts"))


def test_job_locked_by_another_transaction_is_refused_and_does_not_stop_the_rest(
    database: str, stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smena._ops.people.PATIENCE", 0.1)
    ids = [stock.put("failed") for _ in range(3)]
    with psycopg.connect(database) as other:
        other.execute("select from smena.job where id = %s for update", [ids[1]])
        result = smena("job", "requeue", *ids, "--yes", code=1)
    assert "2 requeued, 1 refused" in result.stdout
    assert f"job {ids[1]} is locked" in result.stderr


def test_selection_larger_than_a_page_is_acted_on_as_a_whole(
    stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smena.cli.selection._PAGE", 3)
    ids = [stock.put("failed") for _ in range(10)]
    assert "10 requeued" in smena("job", "requeue", "--state", "failed", "--yes").stdout
    assert ["ready"] * 10 == stock.states(*ids)
    assert "10 cancelled" in smena("job", "cancel", *ids, "--yes").stdout


def test_interruption_says_how_far_it_came(stock: Any, smena: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from smena._ops import people

    ids = [stock.put("failed") for _ in range(3)]
    requeue = people.requeue

    def interrupted(id: int, *args: Any, **options: Any) -> Any:
        if id == ids[1]:
            raise KeyboardInterrupt
        return requeue(id, *args, **options)

    monkeypatch.setattr(people, "requeue", interrupted)
    result = smena("job", "requeue", *ids, "--yes", code=130)
    assert "1 requeued, 2 not reached" in result.stdout
    assert "smena: interrupted" in result.stderr
    assert ["ready", "failed", "failed"] == stock.states(*ids)
