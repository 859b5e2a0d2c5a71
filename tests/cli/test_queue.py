"""`smena queue`."""

from __future__ import annotations

from typing import Any


def test_counts_are_those_of_the_store(stock: Any, smena: Any) -> None:
    for state, number in (("ready", 3), ("running", 2), ("failed", 4), ("scheduled", 1)):
        for _ in range(number):
            stock.put(state)
    stock.put("ready", queue="mail")
    stock.count()
    items = {item["queue"]: item for item in smena.json("queue", "list")["items"]}
    counted = stock.sql("select queue, state, count(*) from smena.jobs group by 1, 2")
    assert {(queue, state, n) for queue, state, n in counted} == {
        (name, state, count["count"])
        for name, item in items.items()
        for state, count in item["counts"].items()
        if count["count"]
    }
    lines = [line.split() for line in smena("queue", "list").stdout.splitlines()]
    assert ["queue", "scheduled", "ready", "running", "failed", "oldest"] == lines[0]
    assert ["payments", "1", "3", "2", "4"] == lines[2][:5]


def test_capped_count_says_that_there_are_more(stock: Any, smena: Any) -> None:
    stock.put("ready")
    stock.count()
    stock.sql("update smena.queue_counts set count = 10000, capped = true, oldest_age = 7300 where state = 'ready'")
    assert ["payments", "10,000+", "0", "0", "2", "h"] == smena("queue", "list").stdout.splitlines()[1].split()


def test_queue_that_was_never_measured_has_no_counts(stock: Any, smena: Any) -> None:
    stock.put("ready")
    result = smena("queue", "list")
    assert ["payments", "-", "-", "-", "-"] == result.stdout.splitlines()[1].split()
    assert "a running worker measures them" in result.stderr


def test_old_counts_are_told_to_be_old(stock: Any, smena: Any) -> None:
    stock.put("ready")
    stock.count()
    assert "" == smena("queue", "list").stderr
    stock.sql("update smena.queue_counts set measured_at = measured_at - interval '1 hour'")
    assert "counts are 1 h old: no worker is measuring them" in smena("queue", "list").stderr


def test_no_queues(smena: Any) -> None:
    assert "no queues" in smena("queue", "list").stderr
    assert {"items": [], "next": None} == smena.json("queue", "list")


def test_paused_queue_says_by_whom_and_why(stock: Any, smena: Any) -> None:
    stock.put("ready")
    smena("queue", "pause", "payments", "--reason", "provider is down")
    item = smena.json("queue", "list")["items"][0]
    assert ("provider is down", stock.one("select session_user")) == (item["pause_reason"], item["paused_by"])
    out = smena("queue", "list").stdout
    assert "paused" in out.splitlines()[1]
    assert f"by {item['paused_by']}: provider is down" in out


def test_second_pause_leaves_the_first_one(stock: Any, smena: Any) -> None:
    stock.put("ready")
    smena("queue", "pause", "payments", "--reason", "first")
    assert "was paused" in smena("queue", "pause", "payments", "--reason", "second").stdout
    assert "first" == smena.json("queue", "list")["items"][0]["pause_reason"]


def test_resumed_queue_is_not_paused(stock: Any, smena: Any) -> None:
    stock.put("ready")
    smena("queue", "pause", "payments")
    assert "is resumed" in smena("queue", "resume", "payments", "--reason", "back").stdout
    assert smena.json("queue", "list")["items"][0]["paused_at"] is None
    assert "was not paused" in smena("queue", "resume", "payments").stdout


def test_pause_and_resume_are_audited_once_each(stock: Any, smena: Any) -> None:
    stock.put("ready")
    for verb in ("pause", "pause", "resume", "resume"):
        smena("queue", verb, "payments", "--reason", verb)
    rows = stock.sql("select action, queue, reason, actor = session_user from smena.audit order by id")
    assert [("pause", "payments", "pause", True), ("resume", "payments", "resume", True)] == rows


def test_unknown_queue_ends_with_3_and_names_those_there_are(stock: Any, smena: Any) -> None:
    stock.put("ready")
    for verb in ("pause", "resume"):
        assert "no queue 'paymnts': there are payments" in smena("queue", verb, "paymnts", code=3).stderr
