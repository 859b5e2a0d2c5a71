"""What the codec takes survives PostgreSQL's jsonb, which rewrites numbers, keys and spaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smena.arguments import Arguments, encode_headers, encode_result
from smena.errors import InvalidArguments
from smena.failures import classify

# One connection for all examples of a test: nothing is written.
many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)

Stored = Callable[[str], str]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    price: Decimal
    weights: tuple[float, ...] = ()
    tags: set[str] = field(default_factory=set)
    at: datetime | None = None


@pytest.fixture
def stored(server_dsn: str) -> Iterator[Stored]:
    """Sends a text the way `enqueue` and `claim` do: into a jsonb column of a record, and back as text."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:

        def round_trip(text: str) -> str:
            row = connection.execute(
                "select x.a::text from jsonb_to_recordset(%s::text::jsonb) as x(a jsonb)", [f'[{{"a":{text}}}]']
            ).fetchone()
            assert row is not None
            return str(row[0])

        yield round_trip


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
finite = st.floats(allow_nan=False, allow_infinity=False)
aware = st.datetimes(timezones=st.timezones())
decimals = st.decimals(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
items = st.builds(
    Item,
    name=texts,
    price=decimals,
    weights=st.lists(finite, max_size=3).map(tuple),
    tags=st.sets(texts, max_size=3),
    at=st.none() | aware,
)


@many
@given(plain)
@example(1e22)
@example([5.0, -0.0, 5e-324, sys.float_info.max, 1e16, 2**64, -(2**70), 10**4000])
@example({"b": 1, "a": {"": [], "aa": {}}})
@example('\\u0000 \u2028 \ud7ff\ue000 😀 "\x1f')
def test_json_without_annotations_comes_back_equal(stored: Stored, value: Any) -> None:
    def handler(value) -> None: ...  # type: ignore[no-untyped-def]

    arguments = Arguments.of(handler, "task")

    assert arguments.decode(stored(arguments.encode((value,), {}))) == ((value,), {})


def handler(
    a: float,
    b: int,
    /,
    c: Decimal,
    *more: Item,
    color: Color,
    id: UUID | None = None,
    day: date = date.min,
    hour: time = time.min,
    span: timedelta = timedelta(0),
    raw: bytes = b"",
    keyed: dict[int, Decimal | None] | None = None,
    **rest: float | None,
) -> None: ...


@many
@given(
    args=st.tuples(finite, st.integers(), decimals, items, items),
    optional=st.fixed_dictionaries(
        {"color": st.sampled_from(Color)},
        optional={
            "id": st.uuids(),
            "day": st.dates(),
            "hour": st.times(),
            "span": st.timedeltas(),
            "raw": st.binary(),
            "keyed": st.dictionaries(st.integers(), decimals | st.none(), max_size=3),
            "x": finite | st.none(),
            "a": finite | st.none(),
        },
    ),
)
def test_typed_arguments_come_back_equal_and_of_the_same_types(
    stored: Stored, args: tuple[Any, ...], optional: dict[str, Any]
) -> None:
    arguments = Arguments.of(handler, "task")
    try:
        text = arguments.encode(args, optional)
    except InvalidArguments as error:
        # A zone whose offset then had seconds: the one thing among these that JSON cannot say.
        if "pass it in UTC" not in str(error):
            raise
        return

    got, keywords = arguments.decode(stored(text))

    assert [_utc(one) for one in got] == [_utc(one) for one in args]
    assert [type(one) for one in got] == [type(one) for one in args]
    assert {name: keywords[name] for name in optional} == optional
    assert {name: type(keywords[name]) for name in optional} == {name: type(optional[name]) for name in optional}
    # Of a Decimal also the scale.
    assert str(got[2]) == str(args[2])


def _utc(value: Any) -> Any:
    if not isinstance(value, Item) or value.at is None:
        return value
    # As an offset to UTC, not by `==`: see the hour that a clock shows twice.
    return (value.name, value.price, value.weights, value.tags, value.at - datetime(2000, 1, 1, tzinfo=UTC))


@many
@given(finite)
@example(1e22)
@example(sys.float_info.max)
@example(5e-324)
def test_float_comes_back_exactly_whatever_its_text(stored: Stored, value: float) -> None:
    def handler(value: float) -> None: ...

    arguments = Arguments.of(handler, "task")
    (got,), _ = arguments.decode(stored(arguments.encode((value,), {})))

    assert got == value
    assert isinstance(got, float)


@many
@given(finite | st.integers(-(10**30), 10**30))
@example(1e22)
@example(sys.float_info.max)
@example(1.2345678901234567e16)
def test_number_without_annotation_keeps_its_type(stored: Stored, value: float) -> None:
    def handler(value, other: int | float | None = None) -> None: ...  # type: ignore[no-untyped-def]

    arguments = Arguments.of(handler, "task")
    (got, other), _ = arguments.decode(stored(arguments.encode(({"e": [value, "1e5"]}, value), {})))

    assert got == {"e": [value, "1e5"]}
    assert other == value
    assert type(other) is type(got["e"][0]) is type(value)


def test_deepest_arguments_are_stored(stored: Stored) -> None:
    def handler(value) -> None: ...  # type: ignore[no-untyped-def]

    value: Any = 1
    for _ in range(99):
        value = [value]
    arguments = Arguments.of(handler, "task")

    assert arguments.decode(stored(arguments.encode((value,), {}))) == ((value,), {})


@many
@given(st.text(st.characters(codec=None)), st.dictionaries(st.text(), st.text(st.characters(codec=None))))
def test_every_result_and_header_that_is_taken_can_be_stored(
    stored: Stored, text: str, headers: dict[str, str]
) -> None:
    try:
        result = encode_result([text, headers]) or ""
        assert json.loads(stored(result)) == [text, headers]
        assert json.loads(stored(encode_headers(headers))) == headers
    except InvalidArguments:
        pass


@many
@given(st.text(st.characters(codec=None)) | st.binary() | st.lists(st.text(st.characters(codec=None))))
@example("\0" * 5000)
@example("\ud800" * 5000)
def test_detail_of_every_failure_can_be_stored(stored: Stored, message: Any) -> None:
    try:
        raise KeyError(message) from ValueError(message)
    except KeyError as error:
        detail = classify(error, {}).detail

    assert json.loads(stored(json.dumps(detail))) == detail
