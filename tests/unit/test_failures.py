from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smena.errors import ConfigurationError, JobFailure, OutcomeUnknown, Permanent, Transient
from smena.failures import KINDS, Failure, Kind, Mapping, Side, check_mapping, classify, detail_of, kind

OURS, THEIRS, UNDECIDED = Side.OURS, Side.THEIRS, Side.UNDECIDED


def decided(error: BaseException, mapping: Any = None) -> tuple[str, Side, bool]:
    failure = classify(error, mapping or {})
    return failure.kind, failure.side, failure.retried


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


# Kinds.


def test_builtin_kinds_are_those_of_the_rules() -> None:
    assert {name: (str(made.side), made.retried) for name, made in KINDS.items()} == {
        "VALIDATION": ("ours", False),
        "NOT_FOUND": ("ours", False),
        "PERMANENT": ("ours", False),
        "BAD_ARGUMENTS": ("ours", False),
        "UNKNOWN_TASK": ("ours", False),
        "TIMEOUT": ("ours", True),
        "CRASHED": ("ours", False),
        "ERROR": ("ours", True),
        "EXTERNAL_5XX": ("theirs", True),
        "EXTERNAL_TIMEOUT": ("theirs", True),
        "EXTERNAL_UNAVAILABLE": ("theirs", True),
        "RATE_LIMITED": ("theirs", True),
        "OUTCOME_UNKNOWN": ("undecided", False),
    }


def test_unknown_kind_is_ours_and_retried() -> None:
    assert Kind("WEATHER", Side.OURS, True) == kind("WEATHER")
    assert KINDS["RATE_LIMITED"] is kind("RATE_LIMITED")


@pytest.mark.parametrize("name", ["", "lower", "WITH SPACE", "X" * 65, "Ä", "A\0", "A\n", 7])
def test_kind_with_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="1 to 64 characters"):
        Kind(name)


def test_kind_with_a_bad_side_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ours, theirs or undecided"):
        Kind("X", "mine")  # type: ignore[arg-type]


def test_undecided_kind_cannot_be_retried() -> None:
    with pytest.raises(ConfigurationError, match="never retried blindly"):
        Kind("MAYBE_PAID", Side.UNDECIDED)


# What the handler said.


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Permanent(), ("PERMANENT", OURS, False)),
        (Permanent("VALIDATION", "amount is 0.00"), ("VALIDATION", OURS, False)),
        (Permanent("EXTERNAL_5XX"), ("EXTERNAL_5XX", THEIRS, False)),
        (Permanent("CARD_DECLINED"), ("CARD_DECLINED", OURS, False)),
        (Transient(), ("EXTERNAL_UNAVAILABLE", THEIRS, True)),
        (Transient("NOT_FOUND"), ("NOT_FOUND", OURS, True)),
        (Transient("WEATHER"), ("WEATHER", OURS, True)),
        (OutcomeUnknown("no answer"), ("OUTCOME_UNKNOWN", UNDECIDED, False)),
        (Transient("OUTCOME_UNKNOWN"), ("OUTCOME_UNKNOWN", UNDECIDED, False)),
        (JobFailure("VALIDATION"), ("VALIDATION", OURS, False)),
        (JobFailure("RATE_LIMITED"), ("RATE_LIMITED", THEIRS, True)),
        (ValueError("x"), ("ERROR", OURS, True)),
        (TimeoutError(), ("ERROR", OURS, True)),
        (asyncio.CancelledError(), ("ERROR", OURS, True)),
        (KeyboardInterrupt(), ("ERROR", OURS, True)),
    ],
)
def test_exception_says_its_kind(error: BaseException, expected: tuple[str, Side, bool]) -> None:
    assert decided(error) == expected


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("not found", "NOT_FOUND"),
        ("card-declined!", "CARD_DECLINED_"),
        ("x" * 100, "X" * 64),
        ("", "ERROR"),
        (5, "ERROR"),
    ],
)
def test_kind_raised_with_a_bad_name_is_repaired(given_name: Any, name: str) -> None:
    assert decided(Permanent(given_name)) == (name, OURS, False)


def test_subclass_with_its_own_init_keeps_its_meaning() -> None:
    class CardDeclined(Permanent):
        def __init__(self, code: int) -> None:
            self.code = code

    class Busy(Transient):
        def __init__(self) -> None:
            pass

    assert decided(CardDeclined(51)) == ("PERMANENT", OURS, False)
    assert classify(CardDeclined(51), {}).detail["message"] == "51"
    assert decided(Busy())[2] is True


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, None),
        (7, 7.0),
        (timedelta(minutes=1), 60.0),
        (-1, 0.0),
        (float("nan"), None),
        (float("inf"), None),
        ("7", None),
    ],
)
def test_pause_asked_for_by_transient_is_kept_if_it_is_one(retry_after: Any, seconds: float | None) -> None:
    assert classify(Transient(retry_after=retry_after), {}).retry_after == seconds


def test_probe_key_is_kept_with_the_failure() -> None:
    assert classify(OutcomeUnknown("no answer", probe_key="k-17"), {}).detail["probe_key"] == "k-17"
    assert "probe_key" not in classify(OutcomeUnknown(), {}).detail


# What the mapping says.


class ProviderError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"the provider answered {status}")
        self.status = status


def by_status(error: ProviderError) -> Any:
    if error.status == 429:
        return Transient("RATE_LIMITED", retry_after=30)
    if error.status == 404:
        return Permanent("NOT_FOUND")
    return "EXTERNAL_5XX" if error.status >= 500 else None


def test_nearest_class_decides() -> None:
    mapping = {OSError: "EXTERNAL_TIMEOUT", ConnectionError: "EXTERNAL_UNAVAILABLE", Exception: "VALIDATION"}

    assert decided(ConnectionRefusedError(), mapping) == ("EXTERNAL_UNAVAILABLE", THEIRS, True)
    assert decided(FileNotFoundError(), mapping) == ("EXTERNAL_TIMEOUT", THEIRS, True)
    assert decided(ValueError(), mapping) == ("VALIDATION", OURS, False)
    assert decided(KeyboardInterrupt(), mapping) == ("ERROR", OURS, True)


def test_mapping_may_hold_a_kind_of_ones_own() -> None:
    mapping: Mapping = {OSError: Kind("MAINTENANCE", Side.THEIRS, False), ValueError: "WEATHER"}

    assert decided(OSError(), mapping) == ("MAINTENANCE", THEIRS, False)
    assert decided(ValueError(), mapping) == ("WEATHER", OURS, True)


def test_rule_may_be_a_function_of_the_exception() -> None:
    mapping: Mapping = {ProviderError: by_status, Exception: "VALIDATION"}

    assert decided(ProviderError(503), mapping) == ("EXTERNAL_5XX", THEIRS, True)
    assert decided(ProviderError(404), mapping) == ("NOT_FOUND", OURS, False)
    assert decided(ProviderError(429), mapping) == ("RATE_LIMITED", THEIRS, True)
    assert classify(ProviderError(429), mapping).retry_after == 30
    # None: not the rule's case, so the next class decides.
    assert decided(ProviderError(400), mapping) == ("VALIDATION", OURS, False)
    assert decided(ProviderError(400), {ProviderError: by_status}) == ("ERROR", OURS, True)


def test_word_of_the_handler_beats_the_mapping() -> None:
    assert decided(Permanent("VALIDATION"), {Exception: "RATE_LIMITED"}) == ("VALIDATION", OURS, False)


def test_failing_rule_does_not_hide_the_failure() -> None:
    def broken(error: BaseException) -> str:
        raise RuntimeError("no status")

    failure = classify(ProviderError(503), {ProviderError: broken, Exception: "EXTERNAL_5XX"})

    assert (failure.kind, failure.detail["message"]) == ("EXTERNAL_5XX", "the provider answered 503")
    assert failure.detail["mapping"].endswith("ProviderError raised RuntimeError: no status")
    assert decided(ProviderError(503), {ProviderError: broken}) == ("ERROR", OURS, True)
    no_kind: Any = {ValueError: lambda error: 5}
    assert "returned a int" in classify(ValueError(), no_kind).detail["mapping"]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"ValueError": "X"}, "the keys are exception classes"),
        ({int: "X"}, "the keys are exception classes"),
        ({ValueError("x"): "X"}, "the keys are exception classes"),
        ({ValueError: "not found"}, "failure kind 'not found'"),
        ({ValueError: None}, "give a kind's name"),
        ({ValueError: 5}, "give a kind's name"),
    ],
)
def test_mapping_that_means_nothing_is_refused(mapping: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        check_mapping(mapping)


def test_good_mapping_is_handed_back() -> None:
    mapping: Any = {OSError: "EXTERNAL_UNAVAILABLE", ValueError: Kind("X"), ProviderError: by_status}

    assert check_mapping(mapping) is mapping


# Groups.


def test_worst_member_of_a_group_decides() -> None:
    unknown, permanent, transient = OutcomeUnknown(), Permanent("VALIDATION"), Transient(retry_after=9)

    assert decided(ExceptionGroup("", [transient, permanent, unknown])) == ("OUTCOME_UNKNOWN", UNDECIDED, False)
    assert decided(ExceptionGroup("", [transient, ExceptionGroup("", [permanent])])) == ("VALIDATION", OURS, False)
    assert decided(ExceptionGroup("", [transient, ValueError()])) == ("EXTERNAL_UNAVAILABLE", THEIRS, True)
    assert classify(ExceptionGroup("", [transient]), {}).retry_after == 9
    assert decided(BaseExceptionGroup("", [KeyboardInterrupt()])) == ("ERROR", OURS, True)


def test_mapping_reaches_into_groups() -> None:
    group = ExceptionGroup("", [ConnectionRefusedError()])

    assert decided(group, {Exception: "VALIDATION", OSError: "EXTERNAL_TIMEOUT"}) == ("EXTERNAL_TIMEOUT", THEIRS, True)
    assert decided(group, {ExceptionGroup: "NOT_FOUND"}) == ("NOT_FOUND", OURS, False)


def test_endless_group_is_an_error() -> None:
    group: Exception = ValueError("inner")
    for _ in range(5_000):
        group = ExceptionGroup("g", [group])

    assert decided(group) == ("ERROR", OURS, True)


# Detail.


def test_detail_tells_type_message_and_where() -> None:
    detail = detail_of(raised(ProviderError(503)))

    assert detail["type"].endswith("test_failures.ProviderError")
    assert detail["message"] == "the provider answered 503"
    lines = detail["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in raised")
    assert lines[2] == "    raise error"
    assert lines[-1].endswith("test_failures.ProviderError: the provider answered 503")
    assert "causes" not in detail


def test_type_of_a_builtin_stands_without_a_module() -> None:
    assert detail_of(ValueError())["type"] == "ValueError"


def test_message_of_a_job_failure_is_its_detail() -> None:
    assert detail_of(Permanent("VALIDATION", "amount is 0.00"))["message"] == "amount is 0.00"
    assert detail_of(Permanent("VALIDATION"))["message"] == "VALIDATION"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ValueError("a"),
        ValueError("a", 1, None),
        ValueError(5),
        ValueError(["a", {"b": (1, 2)}]),
        KeyError("a"),
        OSError(2, "No such file", "/etc/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        ExceptionGroup("several", [ValueError()]),
        ProviderError(1),
    ],
)
def test_short_message_is_what_python_shows(error: Exception) -> None:
    assert detail_of(error)["message"] == str(error)


def test_causes_are_named_with_their_relation() -> None:
    try:
        try:
            try:
                raise KeyError("inner")
            except KeyError:
                raise ValueError("middle")  # noqa: B904 - the point
        except ValueError as error:
            raise ProviderError(503) from error
    except ProviderError as error:
        detail = detail_of(error)

    assert detail["causes"] == [
        {"type": "ValueError", "message": "middle", "how": "cause"},
        {"type": "KeyError", "message": "'inner'", "how": "context"},
    ]
    # The root cause first, as Python prints it, each with its frames.
    positions = [detail["traceback"].index(text) for text in ("KeyError", "ValueError: middle", "ProviderError: the")]
    assert positions == sorted(positions)
    assert detail["traceback"].count("Traceback (most recent call last):") == 3


def test_suppressed_context_is_left_out() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer") from None
    except ValueError as error:
        detail = detail_of(error)

    assert "causes" not in detail


def test_members_of_a_group_are_shown_with_their_frames() -> None:
    group = BaseExceptionGroup("g", [raised(ProviderError(503)), raised(ValueError("two"))])
    detail = detail_of(group)

    assert [(one["message"], one["how"]) for one in detail["causes"]] == [
        ("the provider answered 503", "member"),
        ("two", "member"),
    ]
    assert detail["traceback"].count("in raised") == 2


def test_circle_of_causes_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert [one["message"] for one in detail_of(first)["causes"]] == ["second"]


def test_long_chain_is_cut_to_nine_causes() -> None:
    error: Exception = raised(ValueError("root"))  # type: ignore[assignment]
    for n in range(50):
        outer = ValueError(f"number {n}")
        outer.__cause__ = error
        error = raised(outer)  # type: ignore[assignment]

    detail = detail_of(error)

    assert len(detail["causes"]) == 9
    assert len(detail["traceback"].encode()) <= 8_192


def endless(n: int) -> int:
    return endless(n + 1) + 1


def test_endless_recursion_keeps_head_and_tail() -> None:
    try:
        endless(0)
    except RecursionError as error:
        text = detail_of(error)["traceback"]

    assert len(text.encode()) <= 8_192
    assert "in test_endless_recursion_keeps_head_and_tail" in text
    assert "frames]" in text
    assert text.splitlines()[-1].startswith("RecursionError: maximum recursion depth")


def test_library_frames_go_first_when_a_traceback_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("def call(then): return then()", "/x/site-packages/library.py", "exec")
    library: dict[str, Any] = {}
    exec(code, library)

    def application(n: int) -> None:
        if n == 0:
            raise ValueError("deep")
        library["call"](lambda: application(n - 1))

    try:
        application(18)
    except ValueError as error:
        monkeypatch.setattr("smena.failures.detail.TRACEBACK_BYTES", 1_000_000)
        whole = detail_of(error)["traceback"]
        monkeypatch.undo()
        text = detail_of(error)["traceback"]

    assert whole.count("library.py") == 18
    assert "library.py" not in text
    assert text.count("[1 library frames]") == 18
    assert text.count("application(n - 1)") > 10
    assert 'raise ValueError("deep")' in text


def test_frames_of_the_worker_itself_are_left_out() -> None:
    code = compile("def attempt(handler): handler()", "/x/slots.py", "exec")
    worker: dict[str, Any] = {"__name__": "smena._worker.slots"}
    exec(code, worker)

    def handler() -> None:
        raise ValueError("mine")

    try:
        worker["attempt"](handler)
    except ValueError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        text = detail_of(error)["traceback"]

    assert "slots.py" not in text
    assert "handler" in text


def test_message_is_cut_at_two_kibibytes() -> None:
    for text in ("x" * 10_000, "ü" * 3_000, "\0" * 2_000):
        message = detail_of(ValueError(text))["message"]
        assert len(message.encode()) <= 2_048
        assert message.endswith(f"… ({len(text):,} characters)")


def test_unstorable_characters_are_made_visible() -> None:
    assert detail_of(ValueError("a\0b\ud800c"))["message"] == "a␀b�c"


class Row:
    shown = 0

    def __repr__(self) -> str:
        Row.shown += 1
        return "x" * 50


def test_gigantic_arguments_are_not_formatted() -> None:
    rows = [Row()] * 1_000_000
    Row.shown = 0

    for error in (ValueError(rows), ValueError("bad rows", rows), KeyError(tuple(rows)), ValueError(*rows)):
        assert 0 < len(detail_of(error)["message"].encode()) <= 2_048

    # At most fifty rows for the message, and as many for the last line of the traceback.
    assert 4 * 20 <= Row.shown <= 4 * 2 * 50


class BadText(Exception):
    def __init__(self, fault: BaseException | Any) -> None:
        self.fault = fault

    def __str__(self) -> str:
        if isinstance(self.fault, BaseException):
            raise self.fault
        return self.fault  # type: ignore[no-any-return]


@pytest.mark.parametrize("fault", [ValueError("x"), RecursionError(), SystemExit(3), KeyboardInterrupt(), None, 5])
def test_exception_that_cannot_be_shown_is_still_a_failure(fault: Any) -> None:
    failure = classify(BadText(fault), {})

    assert failure.kind == "ERROR"
    assert failure.detail["message"].startswith("<its str() raised ")


def test_source_that_cannot_be_read_does_not_hide_the_failure() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError("no source")

    code = compile("def fail(): raise ValueError('x')", "<generated>", "exec")
    module: dict[str, Any] = {"__name__": 7, "__loader__": Loader()}
    exec(code, module)

    detail: dict[str, Any] = {}
    try:
        module["fail"]()
    except ValueError as error:
        detail = detail_of(error)

    assert detail["message"] == "x"
    assert detail["traceback"].endswith("ValueError: x")


def test_failure_holds_no_frame_alive() -> None:
    class Big:
        pass

    def handler() -> Failure:
        big = Big()
        try:
            raise ValueError("x")
        except ValueError as error:
            alive.append(sys.getrefcount(big))
            failure = classify(error, {})
        alive.append(sys.getrefcount(big))
        return failure

    alive: list[int] = []
    handler()

    assert alive[0] == alive[1]


anything = st.text(st.characters(codec=None)) | st.binary() | st.integers() | st.none()


def errors() -> st.SearchStrategy[BaseException]:
    leaf: st.SearchStrategy[BaseException] = st.one_of(
        st.builds(ValueError, anything),
        st.builds(KeyError, anything, anything),
        st.builds(Permanent, anything, anything),
        st.builds(Transient, anything, anything, anything | st.floats()),
        st.builds(OutcomeUnknown, anything, anything),
        st.builds(BadText, st.just(SystemExit())),
    )
    return st.recursive(leaf, lambda inner: st.builds(_grouped, st.lists(inner, min_size=1, max_size=3)), max_leaves=6)


def _grouped(members: list[BaseException]) -> BaseException:
    group = BaseExceptionGroup("g\0", members)
    group.__cause__ = members[0]
    return raised(group)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


@given(errors())
def test_any_exception_is_classified_and_bounded(error: BaseException) -> None:
    failure = classify(error, {ValueError: "EXTERNAL_TIMEOUT"})

    assert Kind(failure.kind).name == failure.kind
    assert not (failure.retried and failure.side is Side.UNDECIDED)
    texts = list(_texts(failure.detail))
    assert not any("\0" in text for text in texts)
    assert sum(len(text.encode()) for text in texts) < 20_000
