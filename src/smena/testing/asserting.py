"""What was enqueued: looked at in the database, on the caller's own connection, or in inline mode."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from smena._ops.operation import Operation, Query, Rows
from smena.errors import InvalidArguments
from smena.jobs import JobState
from smena.tasks import Task

if TYPE_CHECKING:
    from smena.app import Smena
    from smena.database import Database

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A stored job. `arguments` are what its handler gets, by the names of its parameters."""

    id: int
    task: str
    arguments: Mapping[str, Any]
    queue: str
    state: JobState
    priority: int
    run_at: datetime
    order_key: str | None
    unique_key: str | None
    headers: Mapping[str, str]

    def __str__(self) -> str:
        words = [f"job {self.id}: {self.task}({_call(self.arguments)})", f"queue={self.queue!r}"]
        if self.order_key is not None:
            words.append(f"order_key={self.order_key!r}")
        return f"{' '.join(words)}, {self.state}"


def enqueued(app_or_task: Smena | Task[..., Any], *, conn: Any = None) -> list[EnqueuedJob]:
    """The jobs of an app or a task, whatever their state, in the order of their ids.

    `conn`: the connection in whose transaction they were enqueued, while that is open.

    >>> assert [17, 18] == [job.arguments["purchase"] for job in enqueued(charge)]
    """
    return _jobs(app_or_task, _database(app_or_task).run(lambda: _look(app_or_task), conn, whole=False))


async def aenqueued(app_or_task: Smena | Task[..., Any], *, conn: Any = None) -> list[EnqueuedJob]:
    """`enqueued` on an async connection."""
    return _jobs(app_or_task, await _database(app_or_task).arun(lambda: _look(app_or_task), conn, whole=False))


def assert_enqueued(
    app_or_task: Smena | Task[..., Any],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    count: int | None = None,
    order_key: str | None = None,
    conn: Any = None,
) -> list[EnqueuedJob]:
    """Fails unless a job that fits was enqueued, or `count` of them. Returns those that fit.

    A job fits when it has all that is given; what is not given is not looked at. So `args` may be the first few
    arguments, and `kwargs` some of them by name.

    >>> assert_enqueued(charge, args=(17,), queue="payments", conn=connection)
    """
    __tracebackhide__ = True
    wanted = _Wanted(app_or_task, tuple(args), dict(kwargs or {}), queue, order_key)
    return wanted.assert_in(enqueued(app_or_task, conn=conn), count)


async def aassert_enqueued(
    app_or_task: Smena | Task[..., Any],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    count: int | None = None,
    order_key: str | None = None,
    conn: Any = None,
) -> list[EnqueuedJob]:
    """`assert_enqueued` on an async connection."""
    __tracebackhide__ = True
    wanted = _Wanted(app_or_task, tuple(args), dict(kwargs or {}), queue, order_key)
    return wanted.assert_in(await aenqueued(app_or_task, conn=conn), count)


def refute_enqueued(
    app_or_task: Smena | Task[..., Any],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    order_key: str | None = None,
    conn: Any = None,
) -> None:
    """Fails if a job that fits was enqueued.

    >>> refute_enqueued(charge, kwargs={"purchase": 18})
    """
    __tracebackhide__ = True
    wanted = _Wanted(app_or_task, tuple(args), dict(kwargs or {}), queue, order_key)
    wanted.refute_in(enqueued(app_or_task, conn=conn))


async def arefute_enqueued(
    app_or_task: Smena | Task[..., Any],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    order_key: str | None = None,
    conn: Any = None,
) -> None:
    """`refute_enqueued` on an async connection."""
    __tracebackhide__ = True
    wanted = _Wanted(app_or_task, tuple(args), dict(kwargs or {}), queue, order_key)
    wanted.refute_in(await aenqueued(app_or_task, conn=conn))


@dataclass(frozen=True, slots=True)
class _Wanted:
    source: Smena | Task[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str | None
    order_key: str | None

    def __post_init__(self) -> None:
        # A misspelt parameter must not pass as "was not enqueued".
        if isinstance(self.source, Task):
            self._arguments(self.source)

    def assert_in(self, jobs: list[EnqueuedJob], count: int | None) -> list[EnqueuedJob]:
        __tracebackhide__ = True
        fitting = [job for job in jobs if self.fits(job)]
        if count is None and not fitting:
            raise AssertionError(f"{self._sentence('no job')} was enqueued.{_instead(jobs)}")
        if count is not None and len(fitting) != count:
            others = _instead([job for job in jobs if not self.fits(job)]) if len(fitting) < count else ""
            number = f"{len(fitting)} {'job' if len(fitting) == 1 else 'jobs'}"
            were = "was" if len(fitting) == 1 else "were"
            raise AssertionError(f"{self._sentence(number)} {were} enqueued, not {count}{_listed(fitting)}{others}")
        return fitting

    def refute_in(self, jobs: list[EnqueuedJob]) -> None:
        __tracebackhide__ = True
        if fitting := [job for job in jobs if self.fits(job)]:
            raise AssertionError(f"{self._sentence('a job')} was enqueued{_listed(fitting)}")

    def fits(self, job: EnqueuedJob) -> bool:
        if self.queue is not None and job.queue != self.queue:
            return False
        if self.order_key is not None and job.order_key != self.order_key:
            return False
        if not self.args and not self.kwargs:
            return True
        task = _task(self.source, job.task)
        if task is None:
            wanted = self.kwargs
            if self.args:
                return False
        else:
            try:
                wanted = self._arguments(task)
            except InvalidArguments:
                return False
        return all(name in job.arguments and job.arguments[name] == value for name, value in wanted.items())

    def _arguments(self, task: Task[..., Any]) -> dict[str, Any]:
        try:
            return dict(inspect.signature(task.function).bind_partial(*self.args, **self.kwargs).arguments)
        except TypeError as error:
            raise InvalidArguments(f"task {task.name}: {error}; it takes {', '.join(task.arguments.names)}") from None

    def _sentence(self, subject: str) -> str:
        source = f"of {self.source.name}" if isinstance(self.source, Task) else "of the app"
        wishes = [f"args={self.args!r}"] if self.args else []
        wishes += [f"kwargs={self.kwargs!r}"] if self.kwargs else []
        wishes += [f"queue={self.queue!r}"] if self.queue is not None else []
        wishes += [f"order_key={self.order_key!r}"] if self.order_key is not None else []
        return f"{subject} {source}{' with ' if wishes else ''}{', '.join(wishes)}"


def _look(source: Smena | Task[..., Any]) -> Operation[Rows]:
    names = json.dumps([source.name, *source.aliases]) if isinstance(source, Task) else None
    return (yield Query("testing/jobs", {"tasks": names, "ids": None}))


def _database(source: Smena | Task[..., Any]) -> Database:
    return source._database if isinstance(source, Task) else source.database


def _task(source: Smena | Task[..., Any], name: str) -> Task[..., Any] | None:
    return source if isinstance(source, Task) else source.tasks.get(name)


def _jobs(source: Smena | Task[..., Any], rows: Rows) -> list[EnqueuedJob]:
    return [_job(source, json.loads(text), args) for text, args in rows]


def _job(source: Smena | Task[..., Any], shown: dict[str, Any], args: str) -> EnqueuedJob:
    task = _task(source, shown["task"])
    return EnqueuedJob(
        id=shown["id"],
        task=shown["task"],
        arguments=json.loads(args) if task is None else _decoded(task, args),
        queue=shown["queue"],
        state=JobState(shown["state"]),
        priority=shown["priority"],
        run_at=datetime.fromisoformat(shown["run_at"]),
        order_key=shown["order_key"],
        unique_key=shown["unique_key"],
        headers=shown["headers"] or {},
    )


def _decoded(task: Task[..., Any], text: str) -> dict[str, Any]:
    try:
        args, kwargs = task.arguments.decode(text)
    except InvalidArguments:
        found: dict[str, Any] = json.loads(text)  # stored under an older signature: shown as it is
        return found
    return dict(inspect.signature(task.function).bind(*args, **kwargs).arguments)


def _instead(jobs: list[EnqueuedJob]) -> str:
    return f"\nEnqueued instead{_listed(jobs)}" if jobs else "\nNothing else was enqueued."


def _listed(jobs: list[EnqueuedJob]) -> str:
    return "".join(_lines(jobs)) if jobs else "."


def _lines(jobs: list[EnqueuedJob]) -> Iterator[str]:
    yield ":"
    for job in jobs[:_MOST_SHOWN]:
        yield f"\n  {job}"
    if len(jobs) > _MOST_SHOWN:
        yield f"\n  and {len(jobs) - _MOST_SHOWN} more"


def _call(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r:.200}" for name, value in arguments.items())
