"""The rights that a role needs for its part, and no more, as SQL.

Segments need no rights of their own: every statement goes through the parent table, except for the parked partition.
Columns are named where a table holds more than the part needs: who enqueues does not read arguments, and nobody writes
another's name into the audit.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from smena.cli.text import one_line

_Rights = dict[str, tuple[str, ...]]

_ALL: _Rights = {
    "select": ("migrations", "installation"),
}
_ENQUEUE: _Rights = {
    "select": ("lanes", "queues", "job (id, pos, state)", "unique_keys"),
    "insert": ("job", "unique_keys"),
    # Stale holds are locked in order before they are dropped; PostgreSQL asks the right to change a column for that.
    "update": ("unique_keys (version)",),
    "delete": ("unique_keys",),
}
_WORK: _Rights = {
    "select": (
        "cancel_requests",
        "claims",
        "duties",
        "floors",
        "job",
        "job_parked",
        "lanes",
        "order_heads",
        "queue_counts",
        "queues",
        "segments",
        "unique_keys",
        "workers",
    ),
    "insert": ("attempts", "claims", "floors", "order_heads", "queue_counts", "workers"),
    "update": ("duties", "floors", "job", "job_parked", "order_heads", "queue_counts", "workers"),
    "delete": ("cancel_requests", "claims", "order_heads", "unique_keys", "workers"),
}
_READ: _Rights = {
    "select": (
        "attempts",
        "audit",
        "claims",
        "floors",
        "job",
        "job_parked",
        "jobs",
        "lanes",
        "queue_stats",
        "queues",
        "workers",
    ),
}
_OPERATE: _Rights = {
    "select": (*_READ["select"], "cancel_requests", "order_heads", "unique_keys"),
    "insert": (
        "attempts",
        "audit (action, job_id, queue, reason, before, after)",
        "cancel_requests (job_id, pos, worker, reason)",
        "unique_keys",
    ),
    "update": (
        "cancel_requests (pos, worker, reason)",
        "job",
        "jobs",
        "queues (paused_at, paused_by, pause_reason)",
        "unique_keys",
    ),
    "delete": ("attempts", "job", "jobs", "order_heads", "unique_keys"),
}
_RIGHTS = {
    "enqueue": _ENQUEUE,
    "work": _WORK,
    "read": _READ,
    "operate": _OPERATE,
}
_SEQUENCE = {"enqueue": "usage", "work": "usage, select, update", "operate": "usage"}

_LANE = 'lane(text, int, "char")'
_SEGMENT_FUNCTIONS = ("supply_segments(int)", "leave_segment(interval)", "drop_segment(bigint, interval)")
_VIEW_FUNCTIONS = ('state_word("char")', "idempotency_key(uuid, bigint, bigint, int)")
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "enqueue": (_LANE,),
    "work": (*_SEGMENT_FUNCTIONS, *_VIEW_FUNCTIONS, "wait_change(bigint, float8, float8)"),
    "read": _VIEW_FUNCTIONS,
    "operate": (
        *_VIEW_FUNCTIONS,
        _LANE,
        "returned_lane(int)",
        "lock_job(bigint)",
        "take_unique_hold({}.job)",
        "release_head({}.job)",
        "write_audit(text, {}.job, text, jsonb)",
        "cancel(bigint, text)",
        "requeue(bigint, text, bool)",
        "delete_job(bigint, text)",
    ),
}

MAY = tuple(_RIGHTS)


def grants(role: str, may: Sequence[str], schema: str) -> str:
    """The statements, in one transaction."""
    who = sql.Identifier(role).as_string(None)
    where = sql.Identifier(schema).as_string(None)
    lines = [
        f"-- What {one_line(who)} needs to {' and '.join(may)} in schema {where}.",
        "-- Run it as the schema's owner, and again after an upgrade.",
        "begin;",
        "-- These run with the owner's rights, and PostgreSQL lets everybody call a new function.",
        f"revoke execute on function {_joined(where, _SEGMENT_FUNCTIONS)} from public;",
        f"grant usage on schema {where} to {who};",
    ]
    for right in ("select", "insert", "update", "delete"):
        tables = sorted({table for part in [_ALL, *(_RIGHTS[name] for name in may)] for table in part.get(right, ())})
        lines += [_on_table(right, table, where, who) for table in tables]
    if uses := sorted({use for name in may if name in _SEQUENCE for use in _SEQUENCE[name].split(", ")}):
        lines.append(f"grant {', '.join(uses)} on sequence {where}.pos_seq to {who};")
    functions = sorted({function for name in may for function in _FUNCTIONS[name]})
    lines.append(f"grant execute on function {_joined(where, functions)} to {who};")
    lines.append("commit;")
    return "\n".join(lines) + "\n"


def _on_table(right: str, table: str, where: str, who: str) -> str:
    name, space, columns = table.partition(" ")
    return f"grant {right}{space}{columns} on {where}.{name} to {who};"


def _joined(where: str, functions: Sequence[str]) -> str:
    return ", ".join(f"{where}.{function.replace('{}', where)}" for function in functions)
