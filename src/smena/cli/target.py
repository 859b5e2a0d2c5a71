"""Where a command works: the app and the store that flags, environment and smena.toml name."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar

import click
import psycopg
from click.core import ParameterSource

from smena._ops.operation import Operation
from smena.app import Smena
from smena.cli.apps import load
from smena.cli.commands import option
from smena.cli.ending import Ending
from smena.cli.screen import remark
from smena.database import Database, connect
from smena.errors import ConfigurationError
from smena.store import Store, look

T = TypeVar("T")


class Target:
    """The app and the database of one command. Opened when first asked for, closed with the command."""

    def __init__(
        self, dsn: str | None, schema: str | None, app: str | None, flags: frozenset[str] = frozenset()
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._app = app
        self._flags = flags
        self._told = False
        self._own: tuple[str | None, str] | None = None

    @property
    def schema(self) -> str:
        return self.database.schema

    @property
    def dsn(self) -> str:
        """The DSN in use; an embedded server that it starts is announced."""
        dsn = self.database.dsn
        server = self.database.embedded
        if server is not None and not self._told:
            self._told = True
            remark(f"smena: {server.describe()}")
        return dsn

    @property
    def has_dsn(self) -> bool:
        """Whether a database was named; else an embedded one would be started."""
        return bool(self.database._given or os.environ.get("SMENA_DSN"))

    @cached_property
    def app(self) -> Smena:
        """The app of -A. Its own DSN and schema hold unless a flag of this command says otherwise."""
        if self._app is None:
            raise ConfigurationError("no app was given: name it with -A module:attribute or SMENA_APP")
        with self._schema_for_import():
            app = load(self._app)
        # The app's own DSN comes before environment and file, a flag before all; the environment the app reads itself.
        own = app.database._given, app.database.schema
        if "dsn" in self._flags or not (own[0] or os.environ.get("SMENA_DSN")):
            app.database._given = self._dsn
        if "schema" in self._flags and self._schema is not None:
            app.database.schema = Database(schema=self._schema).schema
        self._own = own
        return app

    @contextmanager
    def _schema_for_import(self) -> Iterator[None]:
        """What smena.toml says holds for an app that names no schema: such an app asks the environment."""
        if self._schema is None or os.environ.get("SMENA_SCHEMA"):
            yield
            return
        before = os.environ.get("SMENA_SCHEMA")
        os.environ["SMENA_SCHEMA"] = self._schema
        try:
            yield
        finally:
            del os.environ["SMENA_SCHEMA"]
            if before is not None:
                os.environ["SMENA_SCHEMA"] = before

    @property
    def app_path(self) -> str | None:
        return self._app

    @cached_property
    def database(self) -> Database:
        if self._app is not None and "dsn" not in self._flags:
            return self.app.database
        return Database(self._dsn, schema=self._schema or "smena", pool_size=2)

    def connection(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection outside the pool."""
        return connect(self.dsn, **options)

    def look(self, *, work: bool = False) -> Store:
        """Makes sure that the store fits this release."""
        with self.connection() as connection:
            return look(connection, self.schema, work=work)

    def run(self, operation: Callable[[], Operation[T]]) -> T:
        """Runs an operation in a transaction of its own."""
        return self.database.run(operation)

    def close(self) -> None:
        for name in ("database", "app"):
            if name in self.__dict__:
                opened = self.__dict__[name]
                with suppress(psycopg.Error):
                    opened.close()
        if self._own is not None:
            # The app outlives the command where both run inside a bigger program.
            self.app.database._given, self.app.database.schema = self._own


def target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options by which a command finds its app and its store."""
    for add in (
        option(
            "--debug",
            is_flag=True,
            envvar="SMENA_DEBUG",
            expose_value=False,
            callback=_debug,
            help="Show the traceback of an error.",
        ),
        option("-A", "--app", metavar="MODULE:ATTRIBUTE", envvar="SMENA_APP", help="The app, as in shop.jobs:app."),
        option("--schema", metavar="NAME", envvar="SMENA_SCHEMA", help="The store's schema; smena unless given."),
        option("--dsn", metavar="DSN", envvar="SMENA_DSN", help="The database: a URL or conninfo string."),
    ):
        function = add(function)
    return function


def on_target(function: Callable[..., T]) -> Callable[..., T]:
    """Gives a command the options of `target_options`, and the `Target` that they name as its first argument."""

    @functools.wraps(function)
    def command(*args: Any, dsn: str | None, schema: str | None, app: str | None, **options: Any) -> T:
        return function(target_of(click.get_current_context()), *args, **options)

    return target_options(command)


def target_of(ctx: click.Context) -> Target:
    """What the options of this command say, or those given before its name."""
    values: dict[str, str | None] = {}
    flags = set()
    for name in ("dsn", "schema", "app"):
        values[name], is_flag = _chosen(ctx, name)
        if is_flag:
            flags.add(name)
    target = Target(values["dsn"] or None, values["schema"] or None, values["app"] or None, frozenset(flags))
    ctx.call_on_close(target.close)
    return target


def _chosen(ctx: click.Context, name: str) -> tuple[str | None, bool]:
    """A flag after the command's name, else a flag before it, else what environment, file and default say."""
    here: click.Context | None = ctx
    while here is not None:
        if here.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return here.params[name], True
        here = here.parent
    return ctx.params[name], False


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Ending).debug = True
