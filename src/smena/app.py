"""The app: one object with a database and the tasks that work on it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from smena.database import Database
from smena.errors import ConfigurationError
from smena.handle import JobHandle
from smena.retry import Retry
from smena.tasks import Key, Options, Task, _as_seconds

P = ParamSpec("P")
R = TypeVar("R")


class Smena:
    """Background work on a PostgreSQL database.

    dsn        where the store is: a URL or conninfo string. None takes SMENA_DSN; without that, an embedded
               PostgreSQL is started (extra `embedded`)
    schema     the schema of the store; two schemas in one database do not meet
    lease      seconds after which a worker that stopped renewing is taken for dead, at least 2
    failures   exception class → failure kind, for all tasks: `{httpx.ConnectError: "EXTERNAL_UNAVAILABLE"}`
    lifespan   an async context manager made once per worker process: pools and clients are opened in it
    max_bytes  size limit of a job's arguments as JSON

    >>> app = Smena("postgresql://localhost/shop")
    >>> @app.task(queue="payments", retry=Retry(attempts=10), timeout=30)
    ... async def charge(purchase: int, amount: Decimal) -> None: ...
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str | None = None,
        lease: float | None = None,
        failures: Mapping[type[BaseException], Any] | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        max_bytes: int = 1_048_576,
        pool_size: int = 4,
    ) -> None:
        self.database = Database(dsn, schema=schema or os.environ.get("SMENA_SCHEMA", "smena"), pool_size=pool_size)
        self.lease = _lease(lease)
        self.lifespan = lifespan
        self.tasks: dict[str, Task[..., Any]] = {}
        self._failures = dict(failures or {})
        self._max_bytes = max_bytes

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        retry: Retry = ...,
        timeout: float | timedelta | None = ...,
        repeat: bool = ...,
        after_failed: str = ...,
        expires_in: float | timedelta | None = ...,
        order_key: Key = ...,
        unique_key: Key = ...,
        unique_for: str | float | timedelta = ...,
        failures: Mapping[type[BaseException], Any] | None = ...,
        aliases: list[str] | tuple[str, ...] = ...,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(  # type: ignore[misc]  # it does; mypy compares the defaults
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        timeout: float | timedelta | None = None,
        repeat: bool = True,
        after_failed: str = "next",
        expires_in: float | timedelta | None = None,
        order_key: Key = None,
        unique_key: Key = None,
        unique_for: str | float | timedelta = "active",
        failures: Mapping[type[BaseException], Any] | None = None,
        aliases: list[str] | tuple[str, ...] = (),
    ) -> Any:
        """Makes a task of a function. Async functions run on the worker's loop, others in its threads.

        name          stored with each job; by default `module.function`
        aliases       earlier names, so that jobs stored under them still run
        retry         how often and how soon a failed attempt is repeated
        timeout       seconds an attempt may take; None for no limit
        repeat        False: an attempt that may have begun is never repeated blindly. A crash or time-out after its
                      start ends in `unknown`, for a person to decide
        after_failed  with an order key, when a job failed: 'next' runs the next one, 'block' waits for a person
        failures      exception class → kind, for this task; for the same class before the app's

        The other options are those of `Task.using`.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, staticmethod):
                function = function.__func__
            if not callable(function):
                raise ConfigurationError(f"app.task takes a function, not {function!r:.200}; options are keywords")
            task: Task[..., Any] = Task(
                function,
                name=_name_of(function) if name is None else name,
                database=self.database,
                options=Options(
                    queue=queue,
                    priority=priority,
                    expires_in=_as_seconds(expires_in),
                    order_key=order_key,
                    unique_key=unique_key,
                    unique_for=_as_seconds(unique_for),
                ),
                retry=retry,
                timeout=_as_seconds(timeout),
                repeat=repeat,
                after_failed=after_failed,
                aliases=tuple(aliases),
                failures={**self._failures, **(failures or {})},
                max_bytes=self._max_bytes,
            )
            self._register(task)
            return task

        return register if function is None else register(function)

    def _register(self, task: Task[..., Any]) -> None:
        names = (task.name, *task.aliases)
        for name in names:
            other = self.tasks.get(name)
            if other is not None and other.function is not task.function:
                raise ConfigurationError(
                    f"two tasks are named {name!r}: {other.function!r} and {task.function!r}; give one of them name="
                )
        self.tasks.update(dict.fromkeys(names, task))

    def job(self, id: int) -> JobHandle:
        """A handle on a stored job: its state, its result, and waiting for it.

        >>> app.job(17).wait(timeout=10)  # doctest: +SKIP
        """
        return JobHandle(id, self.database)

    def migrate(self) -> None:
        """Brings the store in this database to the present release, as `smena db migrate` does."""
        from smena._migrations import migrate

        migrate(self.database.dsn, self.database.schema)

    def close(self) -> None:
        """Closes the app's own connections, and leaves the embedded server."""
        self.database.close()

    async def aclose(self) -> None:
        """`close` for an async program."""
        await self.database.aclose()


def _name_of(function: Any) -> str:
    """`module.function`, the module under the name by which others import it."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    module = function.__module__
    if module == "__main__":
        # A program that was started as a script or with -m; a worker imports the same file by its name.
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif file is not None:
            module = Path(file).stem
    return f"{module}.{function.__qualname__}"


def _lease(lease: float | None) -> float:
    if lease is None:
        text = os.environ.get("SMENA_LEASE", "30")
        try:
            lease = float(text)
        except ValueError:
            raise ConfigurationError(f"SMENA_LEASE={text!r}: give a number of seconds, 2 or more") from None
    if not 2 <= lease <= 86400:
        raise ConfigurationError(f"lease={lease!r}: give a number of seconds from 2 to 86400")
    return float(lease)
