"""The pytest plugin as its users meet it, and as everybody else does: each test here is a test run of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

SHOP = """
    from smena import Retry, Smena

    app = Smena("postgresql://localhost:1/nowhere")
    other = Smena("postgresql://localhost:1/nowhere", schema="elsewhere")
    ran = []

    @app.task(retry=Retry(attempts=1))
    def charge(purchase: int) -> None:
        if purchase < 0:
            raise ValueError("declined")
        ran.append(purchase)

    @app.task
    async def mail(to: str) -> None:
        ran.append(to)

    @other.task
    def note(n: int) -> None:
        ran.append(n)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a test file of a project that has the app `shop:app`, with warnings as errors."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def run(test: str, *options: str, ini: str = "smena_app = shop:app") -> pytest.RunResult:
        pytester.makepyfile(shop=SHOP)
        pytester.makepyfile(test_shop=test)
        pytester.makeini(f"[pytest]\npythonpath = .\n{ini}\n")
        return pytester.runpytest_subprocess("-W", "error", "--strict-markers", "--strict-config", "-vv", *options)

    return run


@pytest.fixture
def run_on_server(run: Run, server_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run`, with databases on the server that this test run uses, whichever that is."""
    monkeypatch.setenv("SMENA_TEST_DSN", server_dsn)
    return run


# Those who do not use it


def test_nothing_is_imported_for_a_project_that_does_not_use_smena(run: Run) -> None:
    result = run(
        """
        import sys

        import pytest

        def test_imports() -> None:
            ours = {name for name in sys.modules if name.split(".")[0] == "smena"}
            assert {"smena", "smena.testing", "smena.testing.plugin"} == ours
            assert not {"psycopg", "psycopg_pool", "msgspec", "click", "sqlalchemy"} & set(sys.modules)

        @pytest.mark.parametrize("n", [1, 2])
        def test_fixtures(request: pytest.FixtureRequest, n: int) -> None:
            assert {"request", "n"} == set(request.fixturenames)

        @pytest.mark.anyio
        async def test_anyio(anyio_backend: str) -> None: ...
        """,
        "-p",
        "no:hypothesispytest",
        ini="",
    )
    outcomes = result.parseoutcomes()
    assert {"passed"} == set(outcomes), outcomes
    assert 4 <= outcomes["passed"]


def test_doctests_and_unittests_are_left_alone(run: Run) -> None:
    result = run(
        '''
        import unittest

        def twice(n):
            """
            >>> twice(2)
            4
            """
            return 2 * n

        class TestTwice(unittest.TestCase):
            def test_it(self) -> None:
                self.assertEqual(4, twice(2))
        ''',
        "--doctest-modules",
        ini="",
    )
    result.assert_outcomes(passed=2)


def test_plugin_loads_into_a_process_that_has_imported_smena(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): ...")
    program = "import smena.testing, pytest; smena.Smena; raise SystemExit(pytest.main(['-W', 'error']))"
    result = pytester.run(sys.executable, "-c", program)
    result.assert_outcomes(passed=1)


def test_mark_and_options_are_in_pytests_help(run: Run) -> None:
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.smena(mode=*"])
    run("", "--help").stdout.fnmatch_lines(["*--smena-app=MODULE:ATTRIBUTE*", "*smena_app (string):*"])


# The app


def test_app_is_named_in_the_ini_file_or_on_the_command_line(run: Run) -> None:
    test = """
        import shop

        def test_app(smena_app) -> None:
            assert smena_app in (shop.app, shop.other)
            assert smena_app.database.stand_in is None
            print("schema", smena_app.database.schema)
    """
    run(test, "-s").stdout.fnmatch_lines(["*schema smena*", "*1 passed*"])
    run(test, "-s", "--smena-app", "shop:other").stdout.fnmatch_lines(["*schema elsewhere*", "*1 passed*"])


@pytest.mark.parametrize(
    ("ini", "words"),
    [
        ("", "*which app is smena_app? Name it with `smena_app = shop.jobs:app`*"),
        ("smena_app = shops:app", "*app 'shops:app': there is no module shops*"),
        ("smena_app = shop:apps", "*app 'shop:apps': module shop has no 'apps'; it has the app app, other*"),
    ],
)
def test_app_that_is_not_found_is_told(run: Run, ini: str, words: str) -> None:
    result = run("def test_app(smena_app) -> None: ...", ini=ini)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


def test_app_may_be_a_fixture_of_the_users(run_on_server: Run) -> None:
    result = run_on_server(
        """
        import pytest

        from smena import Smena

        @pytest.fixture
        def smena_app(smena_database):
            app = Smena(smena_database)

            @app.task(name="double")
            def double(n: int) -> int:
                return 2 * n

            yield app
            app.close()

        def test_drain(smena_app, smena_drain) -> None:
            job = smena_app.tasks["double"].enqueue(4)
            assert 1 == smena_drain().done
            assert 8 == smena_app.job(job.id).wait(timeout=0)

        @pytest.mark.smena
        def test_inline(smena_app) -> None:
            assert 8 == smena_app.job(smena_app.tasks["double"].enqueue(4).id).wait(timeout=0)
        """,
        ini="",
    )
    result.assert_outcomes(passed=2)


# Modes


def test_fixture_and_mark_make_a_test_inline_and_no_other(run: Run) -> None:
    result = run(
        """
        import unittest

        import pytest

        import shop
        from smena import testing

        def check() -> None:
            shop.ran.clear()
            shop.charge.enqueue(17)
            shop.mail.enqueue("ann")
            assert [17, "ann"] == shop.ran
            with pytest.raises(ValueError, match="declined"):
                shop.charge.enqueue(-1)
            testing.assert_enqueued(shop.charge, count=2)

        def test_fixture(smena_inline) -> None:
            assert shop.app is smena_inline
            check()

        @pytest.mark.smena(mode="inline")
        def test_mark() -> None:
            check()

        @pytest.mark.smena
        def test_bare_mark() -> None:
            check()

        @pytest.mark.smena("inline")
        class TestMarkOnClass:
            def test_it(self) -> None:
                check()

            @pytest.mark.smena(mode="manual")
            def test_nearest_mark_decides(self) -> None:
                assert shop.app.database.stand_in is None

        @pytest.mark.smena
        class TestUnit(unittest.TestCase):
            def setUp(self) -> None:
                shop.mail.enqueue("bob")

            def test_it(self) -> None:
                testing.assert_enqueued(shop.mail, args=("bob",), count=1)
                check()

        @pytest.mark.parametrize("inline", [pytest.param(True, marks=pytest.mark.smena), False])
        def test_mark_on_one_of_many(inline: bool) -> None:
            assert inline == (shop.app.database.stand_in is not None)

        @pytest.fixture
        def order() -> None:
            shop.charge.enqueue(17)

        @pytest.mark.smena
        def test_mark_holds_for_fixtures_too(order: None) -> None:
            testing.assert_enqueued(shop.charge, args=(17,), count=1)

        def test_others_are_not() -> None:
            assert shop.app.database.stand_in is None

        @pytest.mark.smena
        @pytest.mark.anyio
        async def test_async(anyio_backend_name: str) -> None:
            await shop.mail.aenqueue("bob")
            await shop.charge.aenqueue(18)
            assert ["bob", 18] == shop.ran[-2:]

        @pytest.fixture
        def anyio_backend() -> str:
            return "asyncio"
        """
    )
    result.assert_outcomes(passed=11)


def test_argument_beats_mark_and_mark_beats_autouse(run: Run) -> None:
    result = run(
        """
        import pytest

        import shop

        @pytest.fixture(autouse=True)
        def inline(request, smena_inline) -> None: ...

        def test_inline() -> None:
            assert shop.app.database.stand_in is not None

        @pytest.mark.smena(mode="manual")
        def test_manual() -> None:
            assert shop.app.database.stand_in is None

        def test_argument_comes_after_autouse(smena_manual) -> None:
            assert shop.app.database.stand_in is None

        @pytest.mark.smena(mode="inline")
        def test_argument_beats_mark(smena_manual) -> None:
            assert shop.app.database.stand_in is None
        """
    )
    result.assert_outcomes(passed=4)


def test_mark_on_a_module_holds_for_its_tests(run: Run) -> None:
    result = run(
        """
        import pytest

        import shop

        pytestmark = pytest.mark.smena(mode="inline")

        def test_inline() -> None:
            assert shop.app.database.stand_in is not None

        def test_manual(smena_manual) -> None:
            assert shop.app.database.stand_in is None
        """
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("mark", ['mode="eager"', '"inline", "manual"'])
def test_misspelt_mark_stops_the_run(run: Run, mark: str) -> None:
    result = run(f"import pytest\n\n@pytest.mark.smena({mark})\ndef test_it() -> None: ...")
    assert pytest.ExitCode.OK != result.ret
    result.stderr.fnmatch_lines(
        ['*test_shop.py::test_it: a mark is smena(mode="inline") or smena(mode="manual"), not*']
    )


# Databases


def test_named_app_works_on_the_tests_database_and_goes_back(run_on_server: Run) -> None:
    result = run_on_server(
        """
        import pytest

        import shop
        from smena.testing import assert_enqueued, enqueued

        @pytest.fixture
        def anyio_backend() -> str:
            return "asyncio"

        @pytest.mark.parametrize("visit", [1, 2])
        def test_drain(smena_database, smena_drain, visit: int) -> None:
            assert smena_database == shop.app.database.dsn
            shop.ran.clear()
            shop.charge.using(run_in=60).enqueue(17)
            shop.charge.enqueue(-1)
            assert_enqueued(shop.charge, count=2)
            assert (0, 1) == (smena_drain("default").done, len(enqueued(shop.charge)) - 1)
            assert 1 == smena_drain(with_scheduled=True).done
            assert [17] == shop.ran

        @pytest.mark.anyio
        @pytest.mark.smena(mode="manual")
        async def test_adrain(smena_database, smena_adrain) -> None:
            await shop.mail.aenqueue("ann")
            assert 1 == (await smena_adrain()).done

        def test_afterwards(smena_app) -> None:
            assert "postgresql://localhost:1/nowhere" == shop.app.database.dsn
        """
    )
    result.assert_outcomes(passed=4)


def test_schema_of_the_apps_own_is_made_in_the_tests_database(run_on_server: Run) -> None:
    result = run_on_server(
        """
        import shop

        def test_drain(smena_database, smena_drain) -> None:
            shop.note.enqueue(1)
            assert 1 == smena_drain().done
        """,
        ini="smena_app = shop:other",
    )
    result.assert_outcomes(passed=1)


def test_database_is_made_on_an_embedded_server_when_no_other_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SMENA_TEST_DSN", raising=False)
    result = run(
        """
        import shop

        def test_drain(smena_database, smena_drain, tmp_path_factory) -> None:
            shop.charge.enqueue(17)
            assert 1 == smena_drain().done
        """
    )
    result.assert_outcomes(passed=1)


def test_processes_of_xdist_do_not_disturb_each_other(run_on_server: Run) -> None:
    pytest.importorskip("xdist")
    result = run_on_server(
        """
        import pytest

        import shop
        from smena.testing import enqueued

        @pytest.mark.parametrize("n", range(6))
        def test_drain(smena_database, smena_drain, n: int) -> None:
            shop.charge.enqueue(n)
            assert 1 == smena_drain().done == len(enqueued(shop.app))
        """,
        "-n2",
    )
    result.assert_outcomes(passed=6)


# Django


def test_djangos_test_case_drains_and_asserts_in_its_transaction(
    run_on_server: Run, pytester: pytest.Pytester, database: str
) -> None:
    pytester.makepyfile(
        models="""
        from django.db import models

        class Purchase(models.Model):
            state = models.TextField()

            class Meta:
                app_label = "shop"
        """
    )
    pytester.makeconftest(
        f"""
        import django
        from django.conf import settings
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict({database!r})
        settings.configure(
            DATABASES={{"default": {{
                "ENGINE": "django.db.backends.postgresql", "NAME": parts["dbname"], "HOST": parts["host"],
                "PORT": parts.get("port", ""), "USER": parts.get("user", ""), "PASSWORD": parts.get("password", ""),
            }}}},
            USE_TZ=True,
        )
        django.setup()
        """
    )
    result = run_on_server(
        f"""
        from django.db import IntegrityError, connection, connections
        from django.test import TestCase, TransactionTestCase

        from models import Purchase
        from smena import Retry, Smena
        from smena.testing import assert_enqueued, drain, inline, refute_enqueued

        app = Smena({database!r})

        @app.task
        def charge(id: int) -> None:
            Purchase.objects.filter(pk=id).update(state="charged")

        @app.task
        async def refund(id: int) -> None:
            purchase = await Purchase.objects.aget(pk=id)
            purchase.state = "refunded"
            await purchase.asave()

        @app.task(retry=Retry(attempts=1))
        def spoil(id: int) -> None:
            Purchase.objects.create(pk=id, state="twice")

        class TestShop(TestCase):
            @classmethod
            def setUpClass(cls) -> None:
                with connections["default"].cursor() as cursor:
                    cursor.execute("create table if not exists shop_purchase (id serial primary key, state text)")
                super().setUpClass()

            def setUp(self) -> None:
                self.id = Purchase.objects.create(state="new").pk

            def state(self) -> str:
                return Purchase.objects.get(pk=self.id).state

            def test_drain(self) -> None:
                charge.enqueue(self.id, conn=connection)
                assert_enqueued(charge, args=(self.id,), conn=connection)
                self.assertEqual(1, drain(app, conn=connection).done)
                self.assertEqual("charged", self.state())

            def test_drain_of_async_handler(self) -> None:
                refund.enqueue(self.id, conn=connection)
                self.assertEqual(1, drain(app, conn=connection).done)
                self.assertEqual("refunded", self.state())

            def test_integrity_error(self) -> None:
                spoil.enqueue(self.id, conn=connection)
                charge.enqueue(self.id, conn=connection)
                drained = drain(app, conn=connection)
                self.assertEqual((1, 1), (drained.done, drained.failed))
                self.assertIsInstance(drained.failures[0].error, IntegrityError)
                self.assertEqual("charged", self.state())

            def test_inline(self) -> None:
                with inline(app):
                    charge.enqueue(self.id, conn=connection)
                    self.assertEqual("charged", self.state())
                    refund.enqueue(self.id, conn=connection)
                    self.assertEqual("refunded", self.state())

            async def test_async(self) -> None:
                with inline(app):
                    await charge.aenqueue(self.id)
                    self.assertEqual("charged", (await Purchase.objects.aget(pk=self.id)).state)
                    await refund.aenqueue(self.id)
                    self.assertEqual("refunded", (await Purchase.objects.aget(pk=self.id)).state)

        class TestWithout(TestShop):
            def test_nothing_is_left(self) -> None:
                refute_enqueued(app)
                app.close()
        """,
        "-k",
        "not TestWithout or nothing",
        ini="",
    )
    result.assert_outcomes(passed=6, deselected=5)
