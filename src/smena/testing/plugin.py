"""The pytest plugin: loaded by pytest wherever Smena is installed, so it imports nothing before a test asks for it.

smena_app        the app that `--smena-app` or the ini option `smena_app` names; override the fixture for another one.
                 In a test that has `smena_database` too, it works on that database
smena_inline     the app, with its jobs run by `enqueue` itself
smena_manual     the app on its real database, for a test inside an `inline`
smena_drain      `smena.testing.drain` of the app, for a test to call; `smena_adrain` is its async twin
smena_database   the DSN of a fresh, migrated database, on the server of SMENA_TEST_DSN or an embedded one

`@pytest.mark.smena(mode="inline")`, or "manual", on a test, a class or a module is the fixture of that name. It beats
the other one where an autouse fixture brings that, and gives way where the test itself takes it as an argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from smena.app import Smena
    from smena.testing.drained import Drained


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "the app of the fixture smena_app, such as shop.jobs:app"
    parser.getgroup("smena").addoption("--smena-app", metavar="MODULE:ATTRIBUTE", help=what)
    parser.addini("smena_app", what, default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", 'smena(mode="inline"): jobs of smena_app run when they are enqueued; "manual": in drain only'
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    mode = _marked(item)
    if mode is not None and hasattr(item, "fixturenames"):
        # A list of its own: items of one parametrized test share theirs, and may be marked one by one.
        item.fixturenames = [f"smena_{mode}", *item.fixturenames]


def _marked(item: pytest.Item) -> str | None:
    """The mode that the nearest mark asks for."""
    mark = item.get_closest_marker("smena")
    if mark is None:
        return None
    modes = [*mark.args, *mark.kwargs.values()] or ["inline"]
    if len(modes) != 1 or modes[0] not in ("inline", "manual") or not mark.kwargs.keys() <= {"mode"}:
        raise pytest.UsageError(
            f'{item.nodeid}: a mark is smena(mode="inline") or smena(mode="manual"), not {mark.args} {mark.kwargs}'
        )
    return str(modes[0])


@pytest.fixture(scope="session")
def _smena_named_app(request: pytest.FixtureRequest) -> Iterator[Smena]:
    config = request.config
    path = config.getoption("--smena-app") or config.getini("smena_app")
    if not path:
        raise pytest.UsageError(
            "which app is smena_app? Name it with `smena_app = shop.jobs:app` in pytest's ini file, "
            "or define a fixture smena_app that returns it"
        )
    from smena.cli.apps import load

    app = load(path)
    yield app
    app.close()


@pytest.fixture
def smena_app(request: pytest.FixtureRequest, _smena_named_app: Smena) -> Iterator[Smena]:
    """The app named by --smena-app or the ini option smena_app; on smena_database if the test has it."""
    if "smena_database" not in request.fixturenames:
        yield _smena_named_app
        return
    from smena.testing import on_database

    with on_database(_smena_named_app, request.getfixturevalue("smena_database")) as app:
        if app.database.schema != "smena":
            app.migrate()
        yield app


@pytest.fixture
def smena_inline(request: pytest.FixtureRequest, smena_app: Smena) -> Iterator[Smena]:
    """The app; what is enqueued runs at once, without a database."""
    from smena import testing

    with getattr(testing, _decided(request, "inline"))(smena_app) as app:
        yield app


@pytest.fixture
def smena_manual(request: pytest.FixtureRequest, smena_app: Smena) -> Iterator[Smena]:
    """The app on its real database; what is enqueued runs when the test drains."""
    from smena import testing

    with getattr(testing, _decided(request, "manual"))(smena_app) as app:
        yield app


def _decided(request: pytest.FixtureRequest, mode: str) -> str:
    """The mode that holds when a fixture of this mode comes to a test that may be marked with the other."""
    marked = _marked(request.node)
    if marked is None or f"smena_{mode}" in inspect.signature(request.function).parameters:
        return mode
    return marked


@pytest.fixture
def smena_drain(smena_app: Smena) -> Callable[..., Drained]:
    """`drain(queues=None, conn=None, until="empty", with_scheduled=False)` of the app."""
    from functools import partial

    from smena.testing import drain

    return partial(drain, smena_app)


@pytest.fixture
def smena_adrain(smena_app: Smena) -> Callable[..., Coroutine[Any, Any, Drained]]:
    """`smena_drain` for an async test."""
    from functools import partial

    from smena.testing import adrain

    return partial(adrain, smena_app)


@pytest.fixture(scope="session")
def _smena_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from shutil import rmtree

    from smena.testing import databases

    folder = tmp_path_factory.mktemp("smena")
    with databases.server(folder / "data") as dsn:
        yield dsn
    # pytest would keep the files of the last three runs.
    rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _smena_template(_smena_server: str) -> Iterator[str]:
    from smena.testing import databases

    with databases.template(_smena_server) as name:
        yield name


@pytest.fixture
def smena_database(_smena_server: str, _smena_template: str) -> Iterator[str]:
    """The DSN (a `postgresql://` address) of a fresh, migrated, empty database."""
    from smena.testing import databases

    with databases.copy(_smena_server, _smena_template) as dsn:
        yield dsn
