"""Connections that are set up in a way of their own, unusable ones, and what is no connection at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg_pool
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row, scalar_row
from psycopg.types.json import set_json_loads
from psycopg.types.string import StrDumperVarchar, TextLoader
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from callers import CALLERS, django_connection, on_a_loop
from smena import Enqueued, Smena, Task
from smena.errors import ConfigurationError

TEXT = "給料 😀 'single' \" :colon :: %s %(x)s \\"


class Store:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.app = Smena(dsn)

        @self.app.task(name="pay")
        def pay(n: int, note: str = "") -> None: ...

        self.pay: Task[..., Any] = pay

    def numbers(self) -> list[int]:
        """The first argument of each committed job, in the order of their ids."""
        with psycopg.connect(self.dsn) as connection:
            return [row[0]["n"] for row in connection.execute("select args from smena.job order by id")]

    def run(self, statement: str) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = Store(database)
    yield store
    store.app.close()


def _alchemy(dsn: str, driver: str) -> sa.URL:
    return sa.make_url(dsn).set(drivername=f"postgresql+{driver}")


# Connections with settings of their own


@pytest.mark.parametrize(
    "options",
    [
        {"row_factory": dict_row},
        {"row_factory": scalar_row},
        {"cursor_factory": psycopg.ClientCursor},
        {"prepare_threshold": None},
        {"prepare_threshold": 0},
    ],
    ids=str,
)
def test_psycopg_with_other_rows_and_cursors(store: Store, options: dict[str, Any]) -> None:
    with psycopg.connect(store.dsn, **options) as connection:
        first = [store.pay.enqueue(n, conn=connection) for n in range(3)]
        second = store.pay.using(unique_key="k").enqueue_many([(3,), (4,)], conn=connection)
    ids = [job.id for job in first + second]
    assert ids[:4] == sorted(ids[:4])
    assert ids[3] == ids[4]
    assert [0, 1, 2, 3] == store.numbers()


def test_psycopg_with_adapters_of_its_own(store: Store) -> None:
    with psycopg.connect(store.dsn) as connection:
        connection.adapters.register_dumper(str, StrDumperVarchar)
        connection.adapters.register_loader("timestamptz", TextLoader)
        set_json_loads(lambda text: pytest.fail("nothing of ours is decoded here"), connection)
        job = store.pay.enqueue(1, note=TEXT, conn=connection)
        assert type(job.id) is int
        again = [store.pay.using(unique_key=TEXT).enqueue(2, conn=connection) for _ in range(2)]
        assert [Enqueued(again[0].id), Enqueued(again[0].id, created=False)] == again


def test_a_pipeline_of_the_caller(store: Store) -> None:
    with psycopg.connect(store.dsn) as connection:
        with connection.pipeline():
            before = connection.execute("select 1")
            jobs = [store.pay.enqueue(n, conn=connection) for n in range(3)]
            held = [store.pay.using(unique_key="k").enqueue(3, conn=connection) for _ in range(2)]
            many = store.pay.enqueue_many([(n,) for n in range(4, 6_000)], conn=connection)
            assert (1,) == before.fetchone()
        assert [] == store.numbers()
    assert list(range(6_000)) == store.numbers()
    assert [True, False] == [job.created for job in held]
    assert [job.id for job in jobs + many] == sorted(job.id for job in jobs + many)


@on_a_loop
async def test_a_pipeline_of_the_async_caller(store: Store) -> None:
    async with await psycopg.AsyncConnection.connect(store.dsn, autocommit=True) as conn, conn.pipeline():
        await conn.execute("select 1")
        await store.pay.aenqueue(0, conn=conn)
        await store.pay.using(unique_key="k").aenqueue(1, conn=conn)
        await store.pay.using(unique_key="k").aenqueue(2, conn=conn)
        await store.pay.aenqueue_many([(n,) for n in range(3, 6_000)], conn=conn)
    assert [0, 1, *range(3, 6_000)] == store.numbers()


def test_an_error_in_a_pipeline_is_the_callers(store: Store) -> None:
    def in_a_pipeline() -> None:
        with psycopg.connect(store.dsn) as connection, connection.pipeline():
            connection.execute("select 1/0")
            store.pay.enqueue(1, conn=connection)

    with pytest.raises(psycopg.Error, match=r"division by zero|aborted"):
        in_a_pipeline()
    assert [] == store.numbers()


@on_a_loop
async def test_asyncpg_with_codecs_of_its_own(store: Store) -> None:
    class Strange(asyncpg.Record):
        def __getattr__(self, name: str) -> Any:
            return self[name]

    connection = await asyncpg.connect(store.dsn, record_class=Strange, statement_cache_size=0)
    try:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        job = await store.pay.using(headers={"a": TEXT}, order_key="o", run_in=5).aenqueue(1, TEXT, conn=connection)
        many = await store.pay.using(unique_key=TEXT).aenqueue_many([(2,), (3,)], conn=connection)
        assert [False] == [each.created for each in many[1:]]
        assert [TEXT] == await connection.fetchval("select jsonb_build_array(headers->'a') from smena.job limit 1")
    finally:
        await connection.close()
    assert (1, TEXT) == tuple(store.app.job(job.id).read()["args"].values())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_with_serializers_and_streams(store: Store, driver: str) -> None:
    engine = sa.create_engine(
        _alchemy(store.dsn, driver),
        poolclass=NullPool,
        json_serializer=lambda value: "broken",
        json_deserializer=lambda text: "broken",
        execution_options={"stream_results": True, "yield_per": 10},
    )
    with engine.begin() as connection:
        store.pay.enqueue(1, note=TEXT, conn=connection)
        store.pay.using(unique_key="k").enqueue_many([(2,), (3,)], conn=connection)
    with Session(engine) as session, session.begin():
        store.pay.enqueue(4, conn=session)
    assert [1, 2, 4] == store.numbers()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@on_a_loop
async def test_sqlalchemy_async_with_streams_and_a_sync_part(store: Store, driver: str) -> None:
    engine = create_async_engine(
        _alchemy(store.dsn, driver), poolclass=NullPool, execution_options={"stream_results": True}
    )
    async with AsyncSession(engine) as session, session.begin():
        await store.pay.aenqueue(1, conn=session)
        await session.run_sync(lambda inner: store.pay.enqueue(2, conn=inner))
    async with engine.begin() as connection:
        await connection.run_sync(lambda inner: store.pay.enqueue(3, conn=inner))
    await engine.dispose()
    assert [1, 2, 3] == store.numbers()


# All or none, where each statement commits by itself


def _fail_in_the_second_chunk(store: Store) -> None:
    store.run(
        "create function boom() returns trigger language plpgsql as $$ begin"
        " if new.args->>'n' = '5500' then raise 'boom'; end if; return new; end $$;"
        "create trigger boom before insert on smena.job for each row execute function boom()"
    )


def _psycopg(dsn: str) -> Any:
    return closing(psycopg.connect(dsn, autocommit=True))


def _sqlalchemy(driver: str) -> Callable[[str], Any]:
    return lambda dsn: sa.create_engine(
        _alchemy(dsn, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    ).connect()


def _session(dsn: str) -> Any:
    return Session(sa.create_engine(_alchemy(dsn, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT"))


def _django(dsn: str) -> Any:
    return closing(django_connection(dsn))


@pytest.mark.parametrize("connect", [_psycopg, _sqlalchemy("psycopg"), _sqlalchemy("psycopg2"), _session, _django])
def test_many_jobs_are_stored_all_or_none_in_autocommit(store: Store, connect: Callable[[str], Any]) -> None:
    calls = [(n,) for n in range(6_000)]
    _fail_in_the_second_chunk(store)
    with connect(store.dsn) as connection:
        with pytest.raises(Exception, match="boom"):
            store.pay.enqueue_many(calls, conn=connection)
        assert [] == store.numbers()
        store.run("drop function boom cascade")
        store.pay.enqueue_many(calls, conn=connection)
        assert list(range(6_000)) == store.numbers()


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "connection psycopg", "connection asyncpg", "session asyncpg"])
@on_a_loop
async def test_many_jobs_are_stored_all_or_none_in_async_autocommit(store: Store, kind: str) -> None:
    calls = [(n,) for n in range(6_000)]
    _fail_in_the_second_chunk(store)
    engine = None
    connection: Any
    if kind == "psycopg":
        connection = await psycopg.AsyncConnection.connect(store.dsn, autocommit=True)
    elif kind == "asyncpg":
        connection = await asyncpg.connect(store.dsn)
    else:
        engine = create_async_engine(
            _alchemy(store.dsn, kind.split()[1]), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        connection = AsyncSession(engine) if "session" in kind else await engine.connect()
    try:
        with pytest.raises(Exception, match="boom"):
            await store.pay.aenqueue_many(calls, conn=connection)
        assert [] == store.numbers()
        store.run("drop function boom cascade")
        await store.pay.aenqueue_many(calls, conn=connection)
        assert list(range(6_000)) == store.numbers()
    finally:
        await connection.close()
        if engine is not None:
            await engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_transaction_begun_by_hand_in_autocommit_is_not_ended(store: Store, driver: str) -> None:
    engine = sa.create_engine(_alchemy(store.dsn, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("begin"))
        store.pay.enqueue_many([(1,), (2,)], conn=connection)
        assert [] == store.numbers()
        connection.execute(sa.text("rollback"))
    assert [] == store.numbers()


def test_a_psycopg_transaction_in_autocommit_is_the_callers(store: Store) -> None:
    with closing(psycopg.connect(store.dsn, autocommit=True)) as connection:
        with connection.transaction(force_rollback=True):
            store.pay.enqueue_many([(1,), (2,)], conn=connection)
        connection.execute("begin")
        store.pay.enqueue_many([(3,), (4,)], conn=connection)
        connection.execute("rollback")
    assert [] == store.numbers()


# Unusable connections


def test_a_closed_connection_is_named_by_its_driver(store: Store) -> None:
    connection = psycopg.connect(store.dsn)
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        store.pay.enqueue(1, conn=connection)
    with pytest.raises(psycopg.OperationalError, match="closed"):
        store.pay.enqueue_many([(1,), (2,)], conn=connection)


@on_a_loop
async def test_a_closed_async_connection_is_named_by_its_driver(store: Store) -> None:
    first = await psycopg.AsyncConnection.connect(store.dsn)
    await first.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await store.pay.aenqueue(1, conn=first)
    second = await asyncpg.connect(store.dsn)
    await second.close()
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await store.pay.aenqueue(1, conn=second)
    async with asyncpg.create_pool(store.dsn, min_size=0, max_size=1) as pool:
        async with pool.acquire() as proxy:
            pass
        with pytest.raises(asyncpg.InterfaceError, match="released back to the pool"):
            await store.pay.aenqueue(1, conn=proxy)


def test_a_connection_that_the_server_ended_is_named_by_its_driver(store: Store) -> None:
    with closing(psycopg.connect(store.dsn)) as connection:
        store.run(f"select pg_terminate_backend({connection.info.backend_pid})")
        with pytest.raises(Exception, match=r"terminat|closed"):
            store.pay.enqueue(1, conn=connection)
    assert [] == store.numbers()


def test_what_is_no_connection_is_refused(store: Store) -> None:
    with closing(psycopg.connect(store.dsn)) as new, closing(psycopg2.connect(store.dsn)) as old:
        pool = psycopg_pool.ConnectionPool(store.dsn, open=False)
        engine = sa.create_engine(_alchemy(store.dsn, "psycopg"))
        made = sessionmaker(engine)
        for wrong in (new.cursor(), old, old.cursor(), store.dsn, 17, pool, engine, made, Session):
            kind = f"{type(wrong).__module__}.{type(wrong).__qualname__}"
            with pytest.raises(ConfigurationError, match=r"conn= takes a connection of psycopg, ") as raised:
                store.pay.enqueue(1, conn=wrong)
            assert str(raised.value).endswith(f"not {kind}")
            with pytest.raises(ConfigurationError, match=r"conn= takes a connection of psycopg, "):
                store.pay.using(conn=wrong).enqueue_many([(1,), (2,)])
    assert [] == store.numbers()


@pytest.mark.parametrize("name", CALLERS)
@on_a_loop
async def test_an_async_connection_needs_the_async_call_and_the_other_way_round(store: Store, name: str) -> None:
    async with CALLERS[name](store.dsn) as caller:
        if caller.asynchronous:
            with pytest.raises(ConfigurationError, match=r"conn= is an async connection .*: call aenqueue\(\)"):
                store.pay.enqueue(1, conn=caller.conn)
            with pytest.raises(ConfigurationError, match=r"conn= is an async connection .*: call aenqueue\(\)"):
                store.pay.enqueue_many([(1,), (2,)], conn=caller.conn)
        else:
            with pytest.raises(ConfigurationError, match=r"conn= is a sync connection .*: call enqueue\(\)"):
                await store.pay.aenqueue(1, conn=caller.conn)
            with pytest.raises(ConfigurationError, match=r"conn= is a sync connection .*: call enqueue\(\)"):
                await store.pay.aenqueue_many([(1,), (2,)], conn=caller.conn)
    assert [] == store.numbers()


def test_another_database_behind_sqlalchemy_or_django_is_refused(store: Store) -> None:
    from django.db import connections

    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection, Session(engine) as session:
        for conn in (connection, session):
            for call in (lambda c: store.pay.enqueue(1, conn=c), lambda c: store.pay.enqueue_many([(1,)] * 2, conn=c)):
                with pytest.raises(ConfigurationError, match="on sqlite: the job store is in PostgreSQL"):
                    call(conn)
    engine.dispose()
    django_connection(store.dsn)
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.databases["small"] = connections.configure_settings({"default": {}, "small": database})["small"]
    with closing(connections["small"]), pytest.raises(ConfigurationError, match="to sqlite: the job store is in"):
        store.pay.enqueue(1, conn=connections["small"])
    with closing(sqlite3.connect(":memory:")) as plain, pytest.raises(ConfigurationError, match=r"not sqlite3\.Conn"):
        store.pay.enqueue(1, conn=plain)


@on_a_loop
async def test_another_database_behind_async_sqlalchemy_is_refused(store: Store) -> None:
    # No async SQLite driver is installed; the dialect is all that is looked at.
    class Elsewhere(AsyncConnection):
        def __init__(self) -> None: ...

        dialect = sa.create_engine("sqlite://").dialect

    with pytest.raises(ConfigurationError, match="on sqlite"):
        await store.pay.aenqueue(1, conn=Elsewhere())


def test_django_takes_its_default_connection_by_its_proxy(store: Store) -> None:
    from django.db import connection, connections, transaction

    django_connection(store.dsn)
    before = connections.databases.get("default")
    connections.databases["default"] = connections.databases["enqueue"]
    if hasattr(connections._connections, "default"):
        del connections["default"]
    try:
        with transaction.atomic():
            store.pay.enqueue(1, conn=connection)
        with transaction.atomic():
            store.pay.enqueue(2, conn=connection)
            transaction.set_rollback(True)
        store.pay.enqueue(3, conn=connection)
    finally:
        connections["default"].close()
        del connections["default"]
        connections.databases["default"] = before
    assert [1, 3] == store.numbers()
