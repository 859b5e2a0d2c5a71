"""From what a handler did to what is written: the row that `jobs/settle` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smena import telemetry
from smena._worker.claimed import ClaimedJob
from smena._worker.results import Results
from smena.arguments import encode_result
from smena.errors import InvalidArguments
from smena.failures import Failure, Side, classify, kind
from smena.jobs import Cancel, Snooze

if TYPE_CHECKING:
    from smena.tasks import Task

Row = dict[str, Any]

# A rolling deploy brings the code that knows the task within this time; until then the job is handed back.
_UNFIT_PAUSE = 10.0
_UNFIT_GRACE = 15 * 60.0


def returned(job: ClaimedJob, value: Any, results: Results) -> None:
    """The handler returned something other than None."""
    match value:
        case Snooze(seconds):
            telemetry.emit("job.snoozed", job=job.id, task=job.task, pause=seconds)
            results.settle(job, _row("s", "snoozed", delay=seconds, back=True, snooze=True))
        case Cancel(reason):
            results.settle(job, cancelled(job, reason))
        case _:
            try:
                results.done(job, encode_result(value))
            except InvalidArguments as error:
                # The work is done; repeating it for the sake of its return value would do it twice.
                telemetry.emit("job.result_refused", job=job.id, task=job.task, error=str(error))
                results.done(job, None)


def raised(job: ClaimedJob, task: Task[..., Any] | None, error: BaseException) -> Row:
    """The handler raised."""
    mapping = task.failures if task is not None else {}
    failure = classify(error, mapping)
    return _failed(job, task, failure)


def timed_out(job: ClaimedJob, task: Task[..., Any]) -> Row:
    """The attempt took longer than the task's time-out. With `repeat=False` its effect may have happened."""
    detail = {"message": f"the attempt took longer than {task.timeout:g} s"}
    if not task.repeat:
        return _unknown(job, Failure("OUTCOME_UNKNOWN", Side.UNDECIDED, False, detail))
    known = kind("TIMEOUT")
    return _failed(job, task, Failure(known.name, known.side, known.retried, detail))


def unfit(job: ClaimedJob, kind_name: str, message: str) -> Row:
    """This worker cannot run the job: its code is older or newer than the job. Another may, so it is handed back."""
    since = (job.rest or {}).get("unknown_for") or 0.0
    telemetry.emit("job.unfit", job=job.id, task=job.task, kind=kind_name, since=since, error=message)
    detail = {"message": message}
    if since < _UNFIT_GRACE:
        return _row("s", None, delay=_UNFIT_PAUSE, back=True, unfit=True, kind=kind_name, side="ours", detail=detail)
    return _row("f", "failed", back=True, kind=kind_name, side="ours", detail=detail, head=_frees_key(job))


def cancelled(job: ClaimedJob, reason: str | None, *, back: bool = False) -> Row:
    """The work is not wanted any more."""
    telemetry.emit("job.cancelled", job=job.id, task=job.task, reason=reason)
    return _row("c", "cancelled", detail={"reason": reason} if reason else None, head=True, back=back)


def handed_back(job: ClaimedJob) -> Row:
    """Never started here: ready again at once, and the attempt is given back."""
    telemetry.emit("job.handed_back", job=job.id, task=job.task)
    return _row("r", "handed_back", back=True)


def interrupted(job: ClaimedJob) -> Row:
    """Stopped by a shutdown: no failure, no back-off, no attempt. A task that must not repeat ends in unknown."""
    if job.rest is not None and not job.rest["repeats"]:
        detail = {"message": "the worker stopped in the middle of an attempt that must not be repeated"}
        return _unknown(job, Failure("OUTCOME_UNKNOWN", Side.UNDECIDED, False, detail))
    return handed_back(job)


def _failed(job: ClaimedJob, task: Task[..., Any] | None, failure: Failure) -> Row:
    if failure.side is Side.UNDECIDED:
        return _unknown(job, failure)
    if failure.retried and task is not None and job.attempt < job.max_attempts:
        pause = (
            task.retry.pause(job.attempt) if failure.retry_after is None else min(failure.retry_after, 366 * 86400.0)
        )
        telemetry.emit("job.retried", job=job.id, task=job.task, attempt=job.attempt, kind=failure.kind, pause=pause)
        return _row(
            "s", "retried", delay=pause, kind=failure.kind, side=failure.side.value, detail=dict(failure.detail)
        )
    telemetry.emit("job.failed", job=job.id, task=job.task, attempt=job.attempt, kind=failure.kind)
    return _row(
        "f",
        "failed",
        kind=failure.kind,
        side=failure.side.value,
        detail=dict(failure.detail),
        head=_frees_key(job),
    )


def _unknown(job: ClaimedJob, failure: Failure) -> Row:
    telemetry.emit("job.unknown", job=job.id, task=job.task, attempt=job.attempt, kind=failure.kind)
    return _row("u", "unknown", kind=failure.kind, side=failure.side.value, detail=dict(failure.detail))


def _frees_key(job: ClaimedJob) -> bool:
    return job.rest is None or job.rest["after_failed"] != "b"


def _row(
    to: str,
    outcome: str | None,
    *,
    delay: float = 0.0,
    back: bool = False,
    head: bool = False,
    snooze: bool = False,
    unfit: bool = False,
    kind: str | None = None,
    side: str | None = None,
    detail: dict[str, Any] | None = None,
) -> Row:
    return {
        "to": to,
        "outcome": outcome,
        "delay": delay,
        "back": back,
        "head": head,
        "snooze": snooze,
        "unfit": unfit,
        "kind": kind,
        "side": side,
        "detail": detail,
    }
