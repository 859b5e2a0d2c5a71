"""How `smena worker` logs: lines for people, or one JSON object per line. Both say which job was running."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any

from smena import telemetry
from smena.cli.text import json_line, lines, one_line
from smena.current import current_job


class TextFormat(logging.Formatter):
    """`2026-12-01 10:00:00.123 +0000 INFO smena: worker.started worker=… [job 17 shop.charge]`"""

    def format(self, record: logging.LogRecord) -> str:
        job = _job()
        belongs = f" [job {job['job']} {job['task']}]" if job and not hasattr(record, "event") else ""
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{belongs}"
        trace = _trace(self, record)
        return one_line(line) + (f"\n{lines(trace)}" if trace else "")


class JsonFormat(logging.Formatter):
    """time, level, logger, message; event and its fields for Smena's own; job and task; exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record, "T"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_job(),
        }
        if hasattr(record, "event"):
            fields["event"] = record.event
            fields |= {
                name.removeprefix("smena_"): value
                for name, value in vars(record).items()
                if name.startswith("smena_") and value is not None
            }
        if trace := _trace(self, record):
            fields["exception"] = trace
        return json_line(json.dumps(fields, ensure_ascii=False, default=str)).replace("\n", "\\n")


def set_up(format: str | None, level: str) -> None:
    """Subscribes the log to Smena's events and sends everything to standard error.

    An app that set logging up when it was imported keeps what it chose, unless a format is asked for.
    """
    root = logging.getLogger()
    if format is not None or not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormat() if format == "json" else TextFormat())
        root.handlers[:] = [handler]
        root.setLevel(level.upper())
    logging.getLogger("smena").setLevel(level.upper())
    telemetry.subscribe(telemetry.log_events)


def _time(record: logging.LogRecord, between: str = " ") -> str:
    moment = datetime.fromtimestamp(record.created).astimezone()
    return moment.isoformat(between, "milliseconds")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _job() -> dict[str, Any]:
    """The job whose handler logs."""
    try:
        job = current_job()
    except LookupError:
        return {}
    return {"job": job.id, "task": job._job.task, "attempt": job.attempt}
