"""A task: the named handler of jobs, and how its jobs are stored."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from smena._ops.jobs import NewJob, Order
from smena._ops.jobs import enqueue as _enqueue
from smena.arguments import Arguments, encode_headers
from smena.errors import ConfigurationError, InvalidArguments
from smena.failures import Mapping as FailureMapping
from smena.failures import check_mapping
from smena.jobs import Enqueued
from smena.retry import Retry

if TYPE_CHECKING:
    from smena.database import Database

__all__ = ["Options", "Task"]

P = ParamSpec("P")
R = TypeVar("R")

Key = str | Callable[..., str | None] | None

_YEARS_10 = 10 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is stored. Durations in seconds. Given on the task, and per call through `task.using(...)`."""

    queue: str = "default"
    priority: int = 0
    run_in: float = 0.0
    run_at: datetime | None = None
    expires_in: float | None = None
    order_key: Key = None
    unique_key: Key = None
    unique_for: str | float = "active"
    idempotency_key: Key = None
    headers: Mapping[str, str] = field(default_factory=dict)
    conn: Any = None

    def __post_init__(self) -> None:
        _text("queue", self.queue, 100, "a queue's name")
        if isinstance(self.priority, bool) or not isinstance(self.priority, int) or not -100 <= self.priority <= 100:
            raise ConfigurationError(f"priority={self.priority!r}: a priority is a whole number from -100 to 100")
        _seconds("run_in", self.run_in, 0, _YEARS_10)
        if self.expires_in is not None:
            _seconds("expires_in", self.expires_in, 0, _YEARS_10)
        if self.run_at is not None and (not isinstance(self.run_at, datetime) or self.run_at.utcoffset() is None):
            raise ConfigurationError(f"run_at={self.run_at!r}: give a datetime with a time zone")
        if self.run_at is not None and self.run_in:
            raise ConfigurationError("run_in= and run_at= exclude each other")
        if isinstance(self.unique_for, str):
            if self.unique_for not in ("active", "waiting", "forever"):
                raise ConfigurationError(
                    f"unique_for={self.unique_for!r}: it is 'active', 'waiting', 'forever' or a number of seconds"
                )
        else:
            _seconds("unique_for", self.unique_for, 0.001, _YEARS_10)
        for name in ("order_key", "unique_key", "idempotency_key"):
            key = getattr(self, name)
            if key is not None and not callable(key):
                _text(name, key, 500, "a key")


class Task(Generic[P, R]):
    """A handler and its name. Made by `@app.task`; calling it runs the function here and now, without a job."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        database: Database,
        options: Options,
        retry: Retry,
        timeout: float | None,
        repeat: bool,
        after_failed: str,
        aliases: tuple[str, ...],
        failures: FailureMapping,
        max_bytes: int,
    ) -> None:
        if timeout is not None:
            _seconds("timeout", timeout, 0.001, _YEARS_10)
        if after_failed not in ("next", "block"):
            raise ConfigurationError(f"after_failed={after_failed!r}: it is 'next' or 'block'")
        if not isinstance(retry, Retry):
            raise ConfigurationError(f"retry={retry!r}: give a Retry, such as Retry(attempts=3)")
        for text in (name, *aliases):
            _text("name", text, 200, "a task's name")
        self.function = function
        self.name = name
        self.options = options
        self.retry = retry
        self.timeout = timeout
        self.repeat = repeat
        self.after_failed = after_failed
        self.aliases = aliases
        self.failures = check_mapping(failures)
        self.arguments = Arguments.of(function, name, max_bytes=max_bytes)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        if "conn" in self.arguments.names:
            raise ConfigurationError(f"task {name}: a parameter named conn would hide enqueue's own; rename it")
        self._database = database
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} queue={self.options.queue}>"

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_in: float | timedelta | None = None,
        run_at: datetime | None = None,
        expires_in: float | timedelta | None = None,
        order_key: Key = None,
        unique_key: Key = None,
        unique_for: str | float | timedelta | None = None,
        idempotency_key: Key = None,
        headers: Mapping[str, str] | None = None,
        conn: Any = None,
    ) -> Task[P, R]:
        """The same task with other options for the next `enqueue`. None leaves an option as it is.

        run_in, run_at     not before so many seconds from now, or that moment; on the database's clock
        priority           -100 to 100, larger first
        expires_in         cancelled if it was not started within so many seconds
        order_key          jobs of one key and queue run one at a time, in the order of their ids
        unique_key         at most one job of this key in the queue, for as long as `unique_for` says:
                           'active' (scheduled, blocked, ready or running), 'waiting' (not yet running), 'forever',
                           or a number of seconds
        idempotency_key    the key for the other side, in place of the one that is made from the job's id
        headers            short texts that travel with the job
        conn               the connection in whose transaction the job is stored

        A key may be a function of the job's arguments: `order_key=lambda purchase, amount: f"customer-{purchase}"`.
        Raises ConfigurationError for a value out of range.

        >>> charge.using(run_in=300, priority=5).enqueue(17, Decimal("29.33"))  # doctest: +SKIP
        """
        given = {
            "queue": queue,
            "priority": priority,
            "run_in": _as_seconds(run_in),
            "run_at": run_at,
            "expires_in": _as_seconds(expires_in),
            "order_key": order_key,
            "unique_key": unique_key,
            "unique_for": _as_seconds(unique_for) if isinstance(unique_for, timedelta) else unique_for,
            "idempotency_key": idempotency_key,
            "headers": headers,
            "conn": conn,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        twin: Task[P, R] = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.options = replace(self.options, **changed)
        return twin

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(self, *args: Any, conn: Any, **kwargs: Any) -> Enqueued: ...
    def enqueue(self, *args: Any, conn: Any = None, **kwargs: Any) -> Enqueued:
        """Stores a job with these arguments.

        With `conn` it is stored in that connection's transaction: the job exists if and only if the transaction
        commits, and the transaction is never committed here. Without, in a short transaction of its own.
        Raises InvalidArguments when the arguments do not fit; then nothing was stored.

        >>> charge.enqueue(17, Decimal("29.33"), conn=connection)  # doctest: +SKIP
        Enqueued(id=1, created=True)
        """
        return self._store([self._job(args, kwargs)], conn)[0]

    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    async def aenqueue(self, *args: Any, conn: Any, **kwargs: Any) -> Enqueued: ...
    async def aenqueue(self, *args: Any, conn: Any = None, **kwargs: Any) -> Enqueued:
        """`enqueue` on an async connection: psycopg, asyncpg or SQLAlchemy's."""
        return (await self._astore([self._job(args, kwargs)], conn))[0]

    def enqueue_many(self, calls: Iterable[Any], *, conn: Any = None) -> list[Enqueued]:
        """Stores a job for each element: a tuple of positional or a mapping of keyword arguments.

        All or none; one statement for up to 5,000 jobs. The answer is in the order of `calls`.

        >>> charge.enqueue_many([(17, a), (18, b)], conn=connection)  # doctest: +SKIP
        """
        return self._store([self._call(n, call) for n, call in enumerate(calls)], conn)

    async def aenqueue_many(self, calls: Iterable[Any], *, conn: Any = None) -> list[Enqueued]:
        """`enqueue_many` on an async connection."""
        return await self._astore([self._call(n, call) for n, call in enumerate(calls)], conn)

    def _store(self, new: list[NewJob], conn: Any) -> list[Enqueued]:
        order = self._order()
        # One job is one statement, or several of which each is right by itself.
        return self._database.run(lambda: _enqueue(order, new), self._connection(conn), whole=len(new) > 1)

    async def _astore(self, new: list[NewJob], conn: Any) -> list[Enqueued]:
        order = self._order()
        return await self._database.arun(lambda: _enqueue(order, new), self._connection(conn), whole=len(new) > 1)

    def _call(self, n: int, call: Any) -> NewJob:
        try:
            if isinstance(call, Mapping):
                return self._job((), call)
            if isinstance(call, (tuple, list)):
                return self._job(tuple(call), {})
        except InvalidArguments as error:
            raise InvalidArguments(f"call {n} of enqueue_many: {error}") from None
        raise InvalidArguments(
            f"call {n} of enqueue_many for task {self.name} is a {type(call).__name__}: "
            "give a tuple of positional or a mapping of keyword arguments"
        )

    def _job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        options = self.options
        text = self.arguments.encode(args, dict(kwargs))
        if options.order_key is None and options.unique_key is None and options.idempotency_key is None:
            return NewJob(text)
        return NewJob(
            text,
            order_key=self._key_of("order_key", options.order_key, args, kwargs),
            unique_key=self._key_of("unique_key", options.unique_key, args, kwargs),
            idempotency_key=self._key_of("idempotency_key", options.idempotency_key, args, kwargs),
        )

    def _key_of(self, name: str, key: Key, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        if not callable(key):
            return key
        try:
            made = key(*args, **kwargs)
            if made is not None:
                _text(name, made, 500, "a key")
        except ConfigurationError as error:
            raise InvalidArguments(f"task {self.name}: the function for {error}") from None
        except Exception as error:
            raise InvalidArguments(
                f"task {self.name}: the function for {name}, called with the arguments as they were passed, "
                f"raised {type(error).__name__}: {error}"
            ) from error
        return made

    def _order(self) -> Order:
        options = self.options
        seconds = None if isinstance(options.unique_for, str) else float(options.unique_for)
        return Order(
            task=self.name,
            queue=options.queue,
            priority=options.priority,
            max_attempts=self.retry.attempts,
            repeats=self.repeat,
            run_in=float(options.run_in),
            run_at=None if options.run_at is None else options.run_at.isoformat(),
            expires_in=None if options.expires_in is None else float(options.expires_in),
            headers=encode_headers(options.headers) if options.headers else None,
            after_failed="b" if self.after_failed == "block" else "n",
            unique_mode=options.unique_for if isinstance(options.unique_for, str) else "seconds",
            unique_seconds=seconds,
        )

    def _connection(self, conn: Any) -> Any:
        return self.options.conn if conn is None else conn


def _as_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _seconds(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigurationError(f"{name}={value!r}: give a number of seconds")
    if not least <= value <= most:
        raise ConfigurationError(f"{name}={value!r}: it is {least:g} to {most:g} seconds")


def _text(name: str, value: Any, most: int, what: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= most or "\0" in value:
        raise ConfigurationError(f"{name}={value!r:.600}: {what} is a text of 1 to {most} characters, without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name}={value!r}: the text has a lone surrogate and cannot be stored") from None
