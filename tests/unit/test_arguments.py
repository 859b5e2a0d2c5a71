from __future__ import annotations

import functools
import math
import typing
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, ParamSpec, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smena.arguments import Arguments, encode_headers, encode_result
from smena.errors import ConfigurationError, InvalidArguments

if typing.TYPE_CHECKING:
    from fractions import Fraction

BERLIN = ZoneInfo("Europe/Berlin")


class Color(Enum):
    RED = "red"


class Word(StrEnum):
    ONE = "one"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Address:
    street: str
    lines: list[str] = field(default_factory=list)
    since: datetime | None = None


@dataclass
class FullAddress(Address):
    zip: str = ""


@dataclass(eq=False)
class Incomparable:
    value: int


@dataclass
class Node:
    children: list[Node]


class Point(msgspec.Struct):
    x: float
    y: float


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    speed: int
    name: str


class Text(str):
    """Like Django's SafeString."""

    def __str__(self) -> str:
        return "not the text"


class Number(int):
    pass


Purchase = NewType("Purchase", int)
Positive = Annotated[int, msgspec.Meta(gt=0)]


def of(function: Callable[..., Any], max_bytes: int = 1_048_576) -> Arguments:
    return Arguments.of(function, "charge", max_bytes=max_bytes)


def taking(annotation: Any) -> Arguments:
    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation
    return of(handler)


def returned(arguments: Arguments, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments.decode(arguments.encode(args, kwargs))


def charge(purchase: int, amount: Decimal, note: str = "none") -> None: ...


def anything(value) -> None: ...  # type: ignore[no-untyped-def]


# What is stored, and with what the handler is called.


def test_only_what_was_passed_is_stored() -> None:
    assert of(charge).encode((17,), {"amount": Decimal("29.30")}) == '{"purchase":17,"amount":"29.30"}'
    assert of(charge).encode((17, Decimal(1), "none"), {}) == '{"purchase":17,"amount":"1","note":"none"}'


def test_default_that_was_not_passed_is_the_one_of_the_code_that_runs() -> None:
    def older(a: int, b: int = 1) -> None: ...
    def newer(a: int, b: int = 2) -> None: ...

    assert of(newer).decode(of(older).encode((5,), {})) == ((5, 2), {})


def test_default_reaches_the_handler_as_the_same_object() -> None:
    marker: Any = object()

    def handler(a: int, b: Any = marker, *, c: list[int] = []) -> None: ...  # noqa: B006 - the point

    args, kwargs = of(handler).decode('{"a":1}')

    assert args[1] is marker
    assert kwargs["c"] is (handler.__kwdefaults__ or {})["c"]


def test_every_kind_of_parameter_comes_back_in_its_place() -> None:
    def handler(a: int, /, b: int, *rest: str, c: bool, d: int = 4, **more: float) -> None: ...

    arguments = of(handler)

    text = arguments.encode((1, 2, "x", "y"), {"c": True, "a": 1.5, "more": 2.5})
    assert text == '{"a":1,"b":2,"rest":["x","y"],"c":true,"more":{"a":1.5,"more":2.5}}'
    assert arguments.decode(text) == ((1, 2, "x", "y"), {"c": True, "d": 4, "a": 1.5, "more": 2.5})
    assert returned(arguments, 1, b=2, c=False) == ((1, 2), {"c": False, "d": 4})


def test_parameter_may_have_any_name() -> None:
    def handler(self: int, args: int, kwargs: int, __struct_fields__: int, p0: int) -> None: ...

    assert returned(of(handler), 1, 2, 3, 4, p0=5) == ((1, 2, 3, 4, 5), {})


def test_function_without_parameters_takes_nothing() -> None:
    def handler() -> None: ...

    assert of(handler).encode((), {}) == "{}"
    assert of(handler).decode("{}") == ((), {})
    with pytest.raises(InvalidArguments, match="unknown field `x`"):
        of(handler).decode('{"x":1}')


def test_decode_takes_text_and_bytes() -> None:
    assert of(charge).decode(b'{"purchase":1,"amount":"2"}') == of(charge).decode('{"purchase":1,"amount":"2"}')


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        ((1,), {}, "amount"),
        ((), {"amount": Decimal(1)}, "purchase"),
        ((1, Decimal(1), "a", "b"), {}, "too many"),
        ((1, Decimal(1)), {"purchase": 2}, "purchase"),
        ((1, Decimal(1)), {"colour": 2}, "colour"),
        ((1, Decimal(1)), {3: 2}, "keywords"),
    ],
)
def test_call_that_does_not_fit_the_signature_is_refused(args: Any, kwargs: Any, names: str) -> None:
    with pytest.raises(InvalidArguments, match=rf"^task charge: .*{names}.*; it takes \(purchase"):
        of(charge).encode(args, kwargs)


def test_positional_only_and_keyword_only_are_kept_apart() -> None:
    def handler(a: int, /, *, b: int) -> None: ...

    for args, kwargs in [((), {"a": 1, "b": 2}), ((1, 2), {})]:
        with pytest.raises(InvalidArguments, match="task charge"):
            of(handler).encode(args, kwargs)


def test_function_that_was_not_annotated_takes_any_json() -> None:
    value = {"a": [1, 2.5, None, True, "ü", {}], "b": 2**80}

    assert returned(of(anything), value) == ((value,), {})


# Types.

SAME: list[tuple[Any, Any]] = [
    (int, 17),
    (int, -(2**80)),
    (float, 0.1),
    (float, 1e22),
    (bool, True),
    (str, 'ü"\\\n\u2028😀'),
    (str, "\\u0000 is text here"),
    (bytes, b"\0\xff"),
    (Decimal, Decimal("29.30")),
    (Decimal, Decimal("1E+5")),
    (UUID, UUID(int=5)),
    (date, date(2026, 2, 28)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
    (int | None, None),
    (int | str, "17"),
    (Literal["a", 1], 1),
    (Purchase, 17),
    (Positive, 1),
    (list[Decimal], [Decimal("0.10")]),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset({"a", "b"})),
    (dict[int, str], {1: "a"}),
    (dict[UUID, Decimal], {UUID(int=1): Decimal(1)}),
    (dict[str, object], {"a": [1, {}]}),
    (object, {"a": 1}),
    (Color, Color.RED),
    (Word, Word.ONE),
    (Level, Level.HIGH),
    (Address, Address("High Street", ["a"], datetime(2026, 1, 1, tzinfo=UTC))),
    (list[Address], [Address("a"), Address("b")]),
    (Node, Node([Node([]), Node([])])),
    (Point, Point(0.5, 1.0)),
    (Pair, Pair(1, "a")),
    (Options, {"speed": 3}),
    (list[Any], [1, "a", None]),
]


@pytest.mark.parametrize(("annotation", "value"), SAME)
def test_value_comes_back_equal_and_of_the_same_type(annotation: Any, value: Any) -> None:
    (got,), _ = returned(taking(annotation), value)

    assert got == value
    assert type(got) is type(value)
    assert repr(got) == repr(value) or isinstance(value, (datetime, set))


def test_scale_of_a_decimal_is_kept() -> None:
    (got,), _ = returned(taking(Decimal), Decimal("29.30"))

    assert str(got) == "29.30"


@pytest.mark.parametrize(
    ("annotation", "value", "got"),
    [
        (float, 3, 3.0),
        (Decimal, 3, Decimal(3)),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (str, Text("text"), "text"),
        (int, Number(7), 7),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (tuple[int, str], Pair(1, "a"), (1, "a")),
        (Word, "one", Word.ONE),
    ],
)
def test_equal_value_of_a_narrower_type_is_taken(annotation: Any, value: Any, got: Any) -> None:
    (back,), _ = returned(taking(annotation), value)

    assert back == got
    assert type(back) is type(got)


def test_object_without_equality_is_compared_by_its_fields() -> None:
    (got,), _ = returned(taking(Incomparable), Incomparable(5))

    assert got.value == 5


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (int, "17", "value: expected `int`, got `str`"),
        (int, 5.0, "value: expected `int`, got `float`"),
        (int, True, "value: expected `int`, got `bool`"),
        (int, None, "value: expected `int`, got `null`"),
        (Positive, 0, "value: expected `int` >= 1"),
        (float, 2**53 + 1, "float"),
        (list[float], [10**400], r"value\[0\]: number out of range"),
        (str, 17, "value: expected `str`"),
        (str, UUID(int=1), "value: the UUID .* would reach the handler as the str"),
        (UUID, str(UUID(int=1)), "value: the str .* pass a UUID"),
        (date, "2026-01-01", "pass a date"),
        (Color, "red", "pass a Color"),
        (Decimal, 0.5, r"value: a float is not exact.*Decimal\('0.5'\)"),
        (list[Decimal], [Decimal(1), 0.5], r"value\[1\]: a float is not exact"),
        (list[int], (1, 2), "value: the tuple .* would reach the handler as the list"),
        (tuple[int, ...], [1, 2], "value: the list .* pass a tuple"),
        (Literal["a"], "b", "value: invalid enum value 'b'"),
        (list[dict[str, int]], [{"a": 1}, {"a": "1"}], r"value\[1\]\[...\]: expected `int`"),
        (Address, FullAddress("a", zip="1"), "value: the FullAddress .* pass a Address"),
        (Address, {"street": "a"}, "value: the dict .* pass a Address"),
        (Options, {"speed": 1, "other": 2}, "value: the key 'other' would not reach"),
        (Any, (1, 2), "value: the tuple .* annotate the parameter as tuple, or pass a list"),
        (Any, {"a": [UUID(int=1)]}, r"value\['a'\]\[0\]: the UUID"),
        (Any, {1: "a"}, "value: the key 1 would not reach the handler: use text keys"),
        (Any, Address("a"), "value: the Address"),
        (Any, datetime(2026, 1, 1, tzinfo=UTC), "value: .*annotate the parameter as datetime"),
        (datetime, datetime(1880, 1, 1, tzinfo=BERLIN), "value: .*pass it in UTC"),
    ],
)
def test_value_that_would_not_come_back_equal_is_refused(annotation: Any, value: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^task charge: .*{says}"):
        taking(annotation).encode((value,), {})


@pytest.mark.parametrize("fold", [0, 1])
def test_hour_that_a_clock_shows_twice_can_be_passed(fold: int) -> None:
    value = datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=fold)

    (got,), _ = returned(taking(datetime), value)

    assert got.astimezone(UTC) == datetime(2025, 10, 26, fold, 30, tzinfo=UTC)
    assert returned(taking(list[Address]), [Address("a", since=value)])[0][0][0].since == got


# What cannot be stored.


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (str, "a\0b", "value: .*NUL character"),
        (list[str], ["a", "\0"], r"value\[1\]: .*NUL"),
        (dict[str, int], {"\0": 1}, "value: key .*NUL"),
        (dict[str, list[str]], {"a": ["\0"]}, r"value\['a'\]\[0\]: .*NUL"),
        (str, "\ud800", "value: .*surrogate"),
        (dict[str, int], {"\udfff": 1}, "value: key .*surrogate"),
        (float, math.nan, "value: nan has no JSON form"),
        (list[float], [1.0, -math.inf], r"value\[1\]: -inf has no JSON form"),
        (float | None, math.nan, "value: nan"),
        (Decimal, Decimal("NaN"), r"value: Decimal\('NaN'\)"),
        (Decimal, Decimal("sNaN"), "value: Decimal"),
        (Decimal, Decimal("-Infinity"), "value: Decimal"),
        (datetime, datetime(2026, 1, 1), r"value: .*no time zone: .*datetime.now\(UTC\)"),
        (list[Address], [Address("a", since=datetime(2026, 1, 1))], r"value\[0\].since: .*no time zone"),
        (list[int], [10**5000], r"value\[0\]: .*4300 digits"),
        (dict[Any, int], {(1, 2): 1}, "value: key .*tuple cannot be a key"),
        (dict[Any, int], {None: 1}, "value: key None: a NoneType cannot be a key"),
    ],
)
def test_value_that_cannot_be_stored_is_refused_with_its_place(
    annotation: Any, value: Any, says: str, annotated: bool
) -> None:
    with pytest.raises(InvalidArguments, match=f"^task charge: {says}"):
        taking(annotation if annotated else Any).encode((value,), {})


@pytest.mark.parametrize("value", [object(), 1j, print, range(3), iter([1]), Path("/"), {"a": [object()]}])
def test_object_that_is_no_json_is_refused_with_advice(value: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"value.*Smena stores JSON; pass an id or a dataclass"):
        of(anything).encode((value,), {})


def test_size_limit_counts_bytes_of_json() -> None:
    limited = of(anything, max_bytes=100)

    assert len(limited.encode(("x" * 88,), {})) == 100
    with pytest.raises(InvalidArguments, match="101 bytes of JSON, the limit is 100: store the data elsewhere"):
        limited.encode(("x" * 89,), {})
    with pytest.raises(InvalidArguments, match="the limit is 100"):
        limited.encode(("ü" * 45,), {})


def test_default_size_limit_is_one_mebibyte() -> None:
    assert Arguments.of(anything, "any").encode(("x" * (1_048_576 - 12),), {})
    with pytest.raises(InvalidArguments, match="1,048,577 bytes of JSON, the limit is 1,048,576"):
        Arguments.of(anything, "any").encode(("x" * (1_048_576 - 11),), {})


def nested(levels: int, kind: type[Any] = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_is_limited_to_100_levels(kind: type[Any]) -> None:
    # The object of the parameters is the first level.
    assert returned(of(anything), nested(99, kind)) == ((nested(99, kind),), {})
    for levels in (100, 500, 5_000, 200_000):
        with pytest.raises(InvalidArguments, match="nested more than 100 levels"):
            of(anything).encode((nested(levels, kind),), {})


def test_many_brackets_are_not_deep_nesting() -> None:
    value = [[n] for n in range(1000)]

    assert returned(of(anything), value, *()) == ((value,), {})


def test_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(InvalidArguments, match="in a circle"):
        of(anything).encode((circle,), {})


# What a worker finds in the store.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"purchase":17}', "missing required field `amount`"),
        ('{"purchase":17,"amount":"1","colour":2}', "unknown field `colour`"),
        ('{"purchase":"17","amount":"1"}', "purchase: expected `int`, got `str`"),
        ('{"purchase":17,"amount":"x"}', "amount: invalid decimal"),
        ("[17]", "expected `object`"),
        ("null", "expected `object`"),
        ('{"purchase":17', "truncated"),
        ("", "truncated"),
        ('{"purchase":17,"amount":"1"}x', "malformed"),
        ("\ud800", "UnicodeEncodeError"),
        (b'{"purchase":17,"amount":"1","note":"\xff"}', "note.*utf-8|utf-8"),
    ],
)
def test_stored_arguments_that_do_not_fit_are_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(InvalidArguments, match=f"(?i)^task charge: .*({says})"):
        of(charge).decode(text)


def test_stored_arguments_may_be_corrected_with_numbers() -> None:
    assert of(charge).decode('{"purchase":17,"amount":29.30}') == ((17, Decimal("29.30"), "none"), {})


def test_deep_stored_arguments_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="too deep"):
        of(anything).decode('{"value":' + "[" * 100_000 + "]" * 100_000 + "}")


def test_stored_keywords_may_not_repeat_a_parameter() -> None:
    def handler(a: int, **more: int) -> None: ...

    with pytest.raises(InvalidArguments, match="more repeats the parameter a"):
        of(handler).decode('{"a":1,"more":{"a":2}}')


@given(st.binary(max_size=50) | st.text(max_size=50))
def test_any_stored_text_is_decoded_or_refused(text: str | bytes) -> None:
    for arguments in (of(charge), of(anything), taking(Address)):
        try:
            arguments.decode(text)
        except InvalidArguments as error:
            if not str(error).startswith("task charge: "):
                raise


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text()
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
other = st.decimals() | st.uuids() | st.datetimes() | st.tuples(st.integers()) | st.sets(st.integers()) | st.binary()


@given(json | other | st.lists(other) | st.dictionaries(st.text() | st.integers() | st.none(), json | other))
def test_any_value_comes_back_equal_or_is_refused(value: Any) -> None:
    for annotation in (Any, float | None, Decimal, list[Decimal], datetime, dict[str, Any], dict[int, Any], set[int]):
        arguments = taking(annotation)
        try:
            text = arguments.encode((value,), {})
        except InvalidArguments as error:
            if not str(error).startswith("task charge: value"):
                raise
            continue
        assert "\\u0000" not in text.replace("\\\\", "")
        assert arguments.decode(text) == ((value,), {})


# Functions.


def test_annotations_may_be_texts() -> None:
    assert of(charge).encode((1,), {"amount": Decimal(1)}) == '{"purchase":1,"amount":"1"}'


def test_return_annotation_need_not_exist() -> None:
    def handler(a: int) -> Fraction:
        raise NotImplementedError

    assert returned(of(handler), 1) == ((1,), {})


def test_unresolvable_annotation_is_named_at_registration() -> None:
    def handler(a: int, ratio: Fraction) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handler, parameter ratio: the annotation 'Fraction' cannot be res"):
        of(handler)


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (Path, "pathlib.*cannot be stored as JSON: take an id or a dataclass"),
        (list[Path], "cannot be stored as JSON"),
        (Callable[[], int], "cannot be stored as JSON"),
        (str | datetime, "cannot be checked: .*str-like"),
        (Address | FullAddress, "cannot be checked"),
    ],
)
def test_annotation_that_can_never_be_stored_is_refused_at_registration(annotation: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s)^task charge: .*handler, parameter value: .*{says}"):
        taking(annotation)


def test_parameter_with_a_default_may_have_a_type_that_is_not_stored() -> None:
    def handler(a: int, clock: Path = Path("/")) -> None: ...

    assert returned(of(handler), 1) == ((1, Path("/")), {})
    with pytest.raises(InvalidArguments, match=r"clock: .*cannot be stored"):
        of(handler).encode((1, Path("/etc")), {})


def test_generators_are_refused_at_registration() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    class Callable_:
        def __call__(self) -> Iterator[int]:
            yield 1

    for handler in (generator, async_generator, functools.partial(generator), Callable_()):
        with pytest.raises(ConfigurationError, match="is a generator, which a job cannot run"):
            of(handler)


def test_coroutine_functions_methods_partials_and_callables_are_read() -> None:
    async def coroutine(a: int, b: Decimal) -> None: ...

    assert returned(of(coroutine), 1, Decimal(2)) == ((1, Decimal(2)), {})
    assert returned(of(Service().handle), 1, Decimal(2)) == ((1, Decimal(2)), {})
    assert returned(of(Service()), 1, Decimal(2)) == ((1, Decimal(2)), {})
    assert returned(of(Service.made), 1, Decimal(2)) == ((1, Decimal(2)), {})
    assert returned(of(Service.plain), 1, Decimal(2)) == ((1, Decimal(2)), {})
    assert returned(of(functools.partial(charge, 1)), Decimal(2)) == ((Decimal(2), "none"), {})
    assert returned(of(functools.partial(charge, amount=Decimal(2))), 1) == (
        (1,),
        {"amount": Decimal(2), "note": "none"},
    )


class Service:
    def handle(self, a: int, b: Decimal) -> None: ...

    def __call__(self, a: int, b: Decimal) -> None: ...

    @classmethod
    def made(cls, a: int, b: Decimal) -> None: ...

    @staticmethod
    def plain(a: int, b: Decimal) -> None: ...


P = ParamSpec("P")


def wrapping(function: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        function(*args, **kwargs)

    return wrapper


def test_wrapped_function_is_checked_by_its_own_signature() -> None:
    assert returned(of(wrapping(charge)), 1, Decimal(2)) == ((1, Decimal(2), "none"), {})
    with pytest.raises(InvalidArguments, match="purchase: expected `int`"):
        of(wrapping(charge)).encode(("1", Decimal(2)), {})


def test_wrapper_that_hides_the_signature_takes_any_json() -> None:
    def hiding(function: Callable[P, None]) -> Callable[P, None]:
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> None: ...

        return wrapper

    assert returned(of(hiding(charge)), 1, a="b") == ((1,), {"a": "b"})


def test_builtin_without_a_signature_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no signature"):
        of(type)


# Pydantic models are known by their methods.


class Model:
    def __init__(self, amount: Decimal) -> None:
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.amount == other.amount

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self) -> dict[str, Any]:
        return {"amount": self.amount}

    def model_dump_json(self, *, by_alias: bool, round_trip: bool) -> str:
        return msgspec.json.encode(self.model_dump()).decode()

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls(Decimal(msgspec.json.decode(text, type=dict[str, str])["amount"]))


def test_models_are_stored_as_they_write_themselves() -> None:
    arguments = taking(list[Model])

    assert arguments.encode(([Model(Decimal("1.50"))],), {}) == '{"value":[{"amount":"1.50"}]}'
    assert returned(arguments, [Model(Decimal("1.50"))]) == (([Model(Decimal("1.50"))],), {})
    assert returned(taking(Model | None), None) == ((None,), {})
    with pytest.raises(InvalidArguments, match=r"value\[0\].amount: Decimal\('NaN'\)"):
        arguments.encode(([Model(Decimal("NaN"))],), {})
    with pytest.raises(InvalidArguments, match=r"value: the Model .* annotate the parameter as Model"):
        of(anything).encode((Model(Decimal(1)),), {})
    with pytest.raises(InvalidArguments, match="task charge: "):
        arguments.decode('{"value":[{}]}')


def test_pydantic_models_come_back_equal() -> None:
    import pydantic

    class Invoice(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(strict=True)
        id: UUID
        amount: Decimal = pydantic.Field(alias="sum")
        at: datetime

    value = Invoice(id=UUID(int=1), sum=Decimal("1.50"), at=datetime(2026, 1, 1, tzinfo=UTC))
    assert returned(taking(Invoice), value) == ((value,), {})
    assert returned(taking(dict[str, Invoice]), {"a": value}) == (({"a": value},), {})
    with pytest.raises(InvalidArguments, match=r"value\.at: .*no time zone"):
        taking(Invoice).encode((Invoice(id=UUID(int=1), sum=Decimal(1), at=datetime(2026, 1, 1)),), {})
    with pytest.raises(InvalidArguments, match=r"(?s)value: .*sum"):
        taking(Invoice).decode('{"value":{"id":"00000000-0000-0000-0000-000000000001"}}')


# Results and headers.


def test_none_is_no_result() -> None:
    assert encode_result(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (False, "false"),
        ("null", '"null"'),
        ([None], "[null]"),
        ({"charged": Decimal("29.30")}, '{"charged":"29.30"}'),
        ((1, 2), "[1,2]"),
        (Address("a"), '{"street":"a","lines":[],"since":null}'),
        (datetime(2026, 1, 1), '"2026-01-01T00:00:00"'),
        (Model(Decimal(1)), '{"amount":"1"}'),
    ],
)
def test_result_is_kept_as_json(value: Any, text: str) -> None:
    assert encode_result(value) == text


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\0", "the result: .*NUL"),
        ({"a": ["\ud800"]}, r"the result\['a'\]\[0\]: .*surrogate"),
        ([math.nan], r"the result\[0\]: nan"),
        (Decimal("Infinity"), "the result: Decimal"),
        ([Decimal("NaN")], r"the result\[0\]: Decimal"),
        (object(), "the result: builtins.object cannot be stored"),
        ({None: 1}, "the result: key None"),
        (nested(101), "the result is nested more than 100 levels"),
        (nested(100_000), "the result is nested more than 100 levels"),
        ("x" * 65_535, "the result is 65,537 bytes of JSON, the limit is 65,536: store the data"),
    ],
)
def test_result_that_cannot_be_kept_is_refused(value: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^{says}"):
        encode_result(value)


@given(json | other)
def test_any_result_is_encoded_or_refused(value: Any) -> None:
    try:
        text = encode_result(value)
    except InvalidArguments:
        return
    assert (text is None) == (value is None)
    assert text is None or "\\u0000" not in text.replace("\\\\", "")


def test_headers_are_texts() -> None:
    assert encode_headers({"traceparent": "00-ü"}) == '{"traceparent":"00-ü"}'
    assert encode_headers({Text("a"): Text("b")}) == '{"a":"b"}'


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"a": 1}, "header 'a': 1 is no text"),
        ({1: "a"}, "header 1: 1 is no text"),
        ({"a": "\0"}, "header 'a': .*NUL"),
        ({"\ud800": "a"}, "header .*surrogate"),
        ({"a": "x" * 8_185}, "8,193 bytes of JSON, the limit is 8,192"),
    ],
)
def test_header_that_cannot_be_stored_is_refused(headers: Any, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        encode_headers(headers)
