"""What a task may be made of, and its options; what is refused is refused without a database."""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

from smena import Smena
from smena.errors import ConfigurationError


@pytest.fixture
def app() -> Smena:
    """An app without a database: what is refused here never asks for one."""
    return Smena("postgresql://nobody@/nowhere?host=/nonexistent")


class Nowhere(tzinfo):
    def utcoffset(self, at: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": -101}, "priority=-101: a priority is a whole number from -100 to 100"),
        ({"priority": 101}, "priority=101"),
        ({"priority": 1.0}, "priority=1.0"),
        ({"priority": True}, "priority=True"),
        ({"run_in": -1}, "run_in=-1: it is 0 to"),
        ({"run_in": float("nan")}, "run_in=nan: give a number of seconds"),
        ({"run_in": float("inf")}, "run_in=inf"),
        ({"run_in": "5"}, "run_in='5': give a number of seconds"),
        ({"run_in": timedelta(days=-1)}, "run_in=-86400"),
        ({"run_in": timedelta(days=40_000)}, "run_in=3456000000"),
        ({"expires_in": -0.1}, "expires_in=-0.1"),
        ({"expires_in": False}, "expires_in=False"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at=.*: give a datetime with a time zone"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=Nowhere())}, "run_at=.*: give a datetime with a time zone"),
        ({"run_at": "2030-01-01T00:00Z"}, "run_at='2030-01-01T00:00Z': give a datetime"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "run_in": 1}, "run_in= and run_at= exclude each other"),
        ({"queue": ""}, "queue='': a queue's name is a text of 1 to 100 characters"),
        ({"queue": "q" * 101}, "queue='q+'"),
        ({"queue": "a\0b"}, "without NUL"),
        ({"queue": "\ud800"}, "lone surrogate"),
        ({"queue": 7}, "queue=7"),
        ({"unique_for": "always"}, "unique_for='always': it is 'active', 'waiting', 'forever' or a number of seconds"),
        ({"unique_for": 0}, "unique_for=0"),
        ({"unique_for": timedelta(0)}, "unique_for=0"),
        *[
            ({name: bad}, words)
            for name in ("order_key", "unique_key", "idempotency_key")
            for bad, words in (
                ("", f"{name}='': a key is a text of 1 to 500 characters, without NUL"),
                ("k" * 501, f"{name}='k+"),
                ("a\0b", "without NUL"),
                ("\udcff", "lone surrogate"),
                (17, f"{name}=17: a key is a text"),
            )
        ],
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused_where_it_is_given(app: Smena, options: Any, words: str) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(ConfigurationError, match=words):
        work.using(**options)


def test_an_option_of_the_task_is_refused_when_it_is_made(app: Smena) -> None:
    for options, words in (
        ({"priority": 200}, "priority=200"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": timedelta(seconds=-1)}, "timeout=-1"),
        ({"after_failed": "stop"}, "after_failed='stop': it is 'next' or 'block'"),
        ({"retry": 3}, r"retry=3: give a Retry, such as Retry\(attempts=3\)"),
        ({"order_key": 4}, "order_key=4"),
        ({"unique_for": "never"}, "unique_for='never'"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            app.task(**options)(lambda: None)  # type: ignore[call-overload]
    assert {} == app.tasks


def test_options_change_a_copy_and_none_leaves_them(app: Smena) -> None:
    @app.task(queue="mail", priority=3, order_key="k", expires_in=timedelta(hours=1), timeout=timedelta(minutes=1))
    def work() -> None: ...

    other = work.using(priority=5, order_key=None, run_in=timedelta(seconds=90), unique_for=timedelta(days=1))
    assert (3, 5) == (work.options.priority, other.options.priority)
    assert ("mail", "k", 90.0, 86400.0, 3600.0) == (
        other.options.queue, other.options.order_key, other.options.run_in, other.options.unique_for,
        other.options.expires_in,
    )  # fmt: skip
    assert 60.0 == work.timeout
    assert work.using() is not work
    assert work.using(priority=0).options.priority == 0


def plain(n: int) -> int:
    """Doubles."""
    return 2 * n


def other(n: int) -> int:
    return 3 * n


def test_a_task_is_called_like_its_function(app: Smena) -> None:
    task = app.task(plain)
    assert 34 == task(17) == task(n=17)
    assert "Doubles." == task.__doc__
    assert f"{__name__}.plain" == task.name
    assert "plain" == task.__name__
    assert f"<task {__name__}.plain queue=default>" == repr(task)

    @app.task()
    async def later(n: int) -> int:
        return n

    assert 17 == asyncio.run(later(17))  # type: ignore[arg-type]
    assert later.is_async
    assert f"{__name__}.test_a_task_is_called_like_its_function.<locals>.later" == later.name


def test_a_task_has_one_name_and_any_aliases(app: Smena) -> None:
    task = app.task(name="pay", aliases=["charge", "old.pay"])(plain)
    assert {"pay": task, "charge": task, "old.pay": task} == app.tasks
    with pytest.raises(ConfigurationError, match=r"two tasks are named 'charge': .*plain.* and .*other.* name="):
        app.task(name="new", aliases=["charge"])(other)
    # The name that was free is not taken by half a task.
    assert {"pay", "charge", "old.pay"} == set(app.tasks)
    app.task(name="pay", priority=5)(plain)
    assert 5 == app.tasks["pay"].options.priority


def test_two_functions_of_one_factory_are_two_tasks(app: Smena) -> None:
    def make(factor: int) -> Any:
        @app.task
        def times(n: int) -> int:
            return n * factor

        return times

    make(2)
    with pytest.raises(ConfigurationError, match="two tasks are named"):
        make(3)


@pytest.mark.parametrize("name", ["", "n" * 201, "a\0b", "\ud800", 17])
def test_a_name_that_cannot_be_stored_is_refused(app: Smena, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        app.task(name=name)(plain)
    with pytest.raises(ConfigurationError, match="name="):
        app.task(aliases=[name])(plain)
    assert {} == app.tasks


@pytest.mark.parametrize("thing", [17, "pay", object()], ids=str)
def test_what_is_no_function_is_refused(app: Smena, thing: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"app.task takes a function, not .*; options are keywords"):
        app.task(thing)


class Mailer:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, to: str) -> None:
        self.sent.append(to)

    @staticmethod
    async def quietly(to: str) -> str:
        return to

    async def __call__(self, to: str) -> str:
        return f"called {to}"


def test_methods_partials_and_callables_are_tasks(app: Smena) -> None:
    mailer = Mailer()
    send = app.task(mailer.send)
    assert f"{__name__}.Mailer.send" == send.name
    send("a")
    assert ["a"] == mailer.sent

    half = app.task(functools.partial(functools.partial(plain), n=4))
    assert f"{__name__}.plain" == half.name
    assert 8 == half()  # type: ignore[call-arg]

    called = app.task(name="called")(mailer)  # type: ignore[arg-type]
    assert called.is_async
    assert "called a" == asyncio.run(called("a"))  # type: ignore[arg-type]

    quiet = app.task(Mailer.__dict__["quietly"])
    assert quiet.is_async
    assert f"{__name__}.Mailer.quietly" == quiet.name


def test_a_parameter_called_conn_is_refused(app: Smena) -> None:
    def work(conn: int) -> None: ...

    with pytest.raises(ConfigurationError, match="a parameter named conn"):
        app.task(work)


def test_a_task_of_a_started_script_has_the_name_by_which_a_worker_imports_it(
    app: Smena, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    def work() -> None: ...

    work.__module__ = "__main__"
    work.__qualname__ = "work"
    monkeypatch.setattr(__main__, "__spec__", None, raising=False)
    monkeypatch.setattr(__main__, "__file__", "/srv/shop/jobs.py", raising=False)
    assert "jobs.work" == app.task(work).name
    monkeypatch.setattr(__main__, "__spec__", functools.partial(print), raising=False)
    __main__.__spec__.name = "shop.jobs.__main__"  # type: ignore[union-attr]
    assert "shop.jobs.work" == app.task(work).name


@pytest.mark.parametrize("id", ["17", None, 1.0, True])
def test_an_id_is_a_whole_number(app: Smena, id: Any) -> None:
    with pytest.raises(ConfigurationError, match="a job's id is a whole number"):
        app.job(id)
