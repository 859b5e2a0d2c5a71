"""JSON texts of the store, read so that nothing is lost on their way to the screen."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

# The order of the columns of smena.jobs as it is documented; jsonb keeps none.
_COLUMNS = (
    "id",
    "queue",
    "task",
    "state",
    "priority",
    "attempt",
    "max_attempts",
    "attempts_total",
    "crashes",
    "snoozes",
    "requeues",
    "run_at",
    "planned_at",
    "created_at",
    "started_at",
    "finished_at",
    "claimed_until",
    "worker",
    "args",
    "headers",
    "result",
    "order_key",
    "unique_key",
    "idempotency_key",
    "schedule",
    "failure_kind",
    "failure_side",
    "failure_detail",
    "failed_at",
)

# Numbers keep their digits: an amount of 0.10 does not become 0.1.
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


def read_document(text: str) -> Any:
    """The value of a JSON text."""
    return _decode(text)


def read_job(text: str) -> dict[str, Any]:
    """A row of smena.jobs, its columns in order; columns of a later release come last."""
    row: dict[str, Any] = _decode(text)
    return {name: row.pop(name) for name in _COLUMNS if name in row} | row
