"""One job on one page: its columns, its arguments and result, what went wrong, its attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from smena.cli.screen import Column, pretty_json, say, state, table
from smena.cli.text import one_line
from smena.cli.times import ago, exact, parsed, span

_BLOCKS = ("args", "headers", "result", "failure_detail", "history", "history_cut")
_MOMENTS = (
    "run_at",
    "planned_at",
    "created_at",
    "started_at",
    "finished_at",
    "claimed_until",
    "failed_at",
)


def history(job: dict[str, Any], attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All attempts, newest first. One that ended in done has no row of its own: the job itself tells of it."""
    if job["state"] != "done":
        return attempts
    last = {
        "attempt": job["attempts_total"],
        "outcome": "done",
        "kind": None,
        "side": None,
        "detail": None,
        "worker": job["worker"],
        "started_at": job["started_at"],
        "finished_at": job["finished_at"],
    }
    return [last, *attempts]


def print_job(job: dict[str, Any], now: datetime) -> None:
    """Prints the page."""
    table(
        (Column(f"job {job['id']}", whole=True), Column("")),
        [
            (name, state(value) if name == "state" else _value(name, value, now))
            for name, value in job.items()
            if name not in _BLOCKS
        ],
    )
    for name in ("args", "headers", "result"):
        if job[name] is not None:
            _heading(name)
            say(pretty_json(job[name]))
    if job["failure_detail"]:
        _heading(f"failure: {job['failure_kind']} ({job['failure_side']})")
        _print_failure(job["failure_detail"])
    if job["history"]:
        _heading("attempts, newest first" + (f" (the last {len(job['history'])})" if job["history_cut"] else ""))
        table(
            (
                Column("attempt", whole=True, right=True),
                Column("outcome", whole=True),
                Column("kind"),
                Column("ended", whole=True),
                Column("took", whole=True, right=True),
                Column("worker"),
                Column("message"),
            ),
            [_attempt(attempt, now) for attempt in job["history"]],
        )


def _value(name: str, value: Any, now: datetime) -> str:
    if value is None:
        return "-"
    return exact(value, now) if name in _MOMENTS else str(value)


def _heading(text: str) -> None:
    say()
    say(one_line(text), style="bold")


def _print_failure(detail: Any) -> None:
    if not isinstance(detail, dict):
        say(pretty_json(detail))
        return
    rest = {key: value for key, value in detail.items() if key not in ("type", "message", "traceback")}
    # The last line of a traceback names type and message already.
    if not detail.get("traceback"):
        say(": ".join(str(detail[key]) for key in ("type", "message") if detail.get(key)))
    else:
        say(str(detail["traceback"]).rstrip("\n"))
        # Nor is a message told twice that the traceback holds as a whole.
        if str(detail.get("message") or "") not in str(detail["traceback"]):
            say()
            say(str(detail["message"]))
    if rest:
        say(pretty_json(rest))


def _attempt(attempt: dict[str, Any], now: datetime) -> list[Any]:
    started, finished = parsed(attempt["started_at"]), parsed(attempt["finished_at"])
    took = span((finished - started).total_seconds()) if started and finished else "-"
    return [
        attempt["attempt"],
        attempt["outcome"],
        attempt["kind"] or "",
        ago(attempt["finished_at"], now),
        took,
        attempt["worker"] or "-",
        _message(attempt["detail"]),
    ]


def _message(detail: Any) -> str:
    if not isinstance(detail, dict):
        return ""
    text = str(detail.get("message") or detail.get("reason") or "")
    return text if len(text) <= 200 else text[:199] + "…"
