"""Python and SQL compute the same idempotency key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smena.idempotency import idempotency_key

bigint = st.integers(-(2**63), 2**63 - 1)


@given(
    inputs=st.lists(st.tuples(st.uuids(), bigint, bigint, st.integers(-(2**31), 2**31 - 1)), min_size=50, max_size=200)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_sql_computes_the_same_key(database: str, inputs: list[tuple[UUID, int, int, int]]) -> None:
    expected = [idempotency_key(*each) for each in inputs]

    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "select smena.idempotency_key(u, j, c, g)"
            " from unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::int[]) with ordinality as t(u, j, c, g, n)"
            " order by n",
            [list(column) for column in zip(*inputs, strict=True)],
        ).fetchall()

    assert [row[0] for row in rows] == expected


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_microseconds_of_a_timestamp_are_exact_in_sql(server_dsn: str, zone: str) -> None:
    """The claim and the view turn created_at into microseconds through a float: it must not lose any until 2100."""
    moments = [
        datetime(year, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for year in (2020, 2038, 2100) for n in range(500)
    ]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    with psycopg.connect(server_dsn) as connection:
        connection.execute("select set_config('TimeZone', %s, false)", [zone])
        rows = connection.execute(
            "select (date_part('epoch', t) * 1000000)::bigint from unnest(%s::timestamptz[]) with ordinality as m(t, n)"
            " order by n",
            [moments],
        ).fetchall()

    assert [row[0] for row in rows] == [(moment - epoch) // timedelta(microseconds=1) for moment in moments]
