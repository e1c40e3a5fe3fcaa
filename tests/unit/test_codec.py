"""JSON in and out: nothing is stored that could not be read back."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from holdfast import codec
from holdfast.codec import DEPTH_MAX, NotJson, decode, encode


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


class PydanticLike:
    """The two methods of a pydantic model that matter here."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"value": self.value}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


storable_text = st.text().map(lambda text: text.replace("\0", ""))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | storable_text
plain_json = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(storable_text, inner), max_leaves=20)


@given(plain_json)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    """What JSON can hold is returned unchanged, whole numbers of any size included."""
    assert value == decode(encode(value))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Point(1, 2.5), {"x": 1, "y": 2.5}),
        (datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00Z"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        ({3}, [3]),
        ({1: "a"}, {"1": "a"}),
        (2**70, 2**70),
        (PydanticLike([1]), {"value": [1]}),
        ([PydanticLike(None)], [{"value": None}]),
    ],
)
def test_rich_values_have_one_json_form(value: Any, stored: Any) -> None:
    """Dataclasses, dates, ids, decimals, enums, sets and pydantic models are stored in their usual form."""
    assert stored == decode(encode(value))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"a": [None, n]}, lambda n: Point(1, n), lambda n: (PydanticLike(n),)])
def test_nan_and_infinity_are_refused_wherever_they_hide(number: float, wrap: Any) -> None:
    """A number that JSON does not know is an error and never a silent null."""
    with pytest.raises(NotJson, match="NaN or Infinity"):
        encode(wrap(number))


@pytest.mark.parametrize("value", ["\0", "a\0b", "\\\0", {"a\0": 1}, ["x", "\\\\\0"]])
def test_nul_characters_are_refused(value: Any) -> None:
    """PostgreSQL could not store them."""
    with pytest.raises(NotJson, match="NUL"):
        encode(value)


@pytest.mark.parametrize("value", ["\\u0000", "\\\\u0000", "u0000", "null"])
def test_text_that_only_looks_like_an_escape_is_kept(value: str) -> None:
    """A literal backslash before u0000 is ordinary text."""
    assert value == decode(encode(value))


def test_lone_surrogates_are_refused() -> None:
    """Text that is not Unicode is refused in words, not by a codec's traceback."""
    with pytest.raises(NotJson, match="surrogate"):
        encode(["\ud800"])


def test_a_value_that_contains_itself_is_refused() -> None:
    """A cycle is a clear error and no RecursionError."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJson, match="contains itself"):
        encode(value)


def test_depth_is_limited_exactly() -> None:
    """The deepest value allowed passes, one level more does not, and width does not count as depth."""
    encode(nested(DEPTH_MAX))
    encode([[1]] * (DEPTH_MAX + 1))
    with pytest.raises(NotJson, match="nested deeper"):
        encode(nested(DEPTH_MAX + 1))


def test_values_without_a_json_form_are_refused_by_type() -> None:
    """The message names the type."""
    with pytest.raises(NotJson, match="a value of type object"):
        encode({"a": [object()]})


@pytest.mark.parametrize("data", [b"", b"{", b"nope", b'"\xff"', b"[" * 100_000])
def test_what_is_not_json_is_a_typed_error(data: bytes) -> None:
    """Broken, truncated and hostile input all end in NotJson."""
    with pytest.raises(NotJson):
        decode(data)


@given(st.text())
def test_text_checks_keep_text_or_raise_valueerror(value: str) -> None:
    """Whatever passes the check for short text can be stored as it is."""
    try:
        kept = codec.text(10)(value)
    except ValueError:
        assert not 0 < len(value) <= 10 or "\0" in value
    else:
        assert value == decode(encode(kept))


# -- signatures --------------------------------------------------------------------------------------------------------

SHARED: list[int] = [1]


async def asynchronous(a: int) -> int:
    return a


def plain(a: int, b: list[int] = SHARED) -> int:
    return a


def returns_what_never_comes(a: int) -> Never: ...  # type: ignore[name-defined]  # noqa: F821


def takes_callback(a: dict[str, Callable[[int], int]]) -> None: ...


def positional_only(a: int, /) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@functools.wraps(asynchronous)
def sync_over_async(*args: Any) -> Any:
    return asynchronous(*args)


@functools.wraps(plain)
async def async_over_sync(*args: Any) -> Any:
    return plain(*args)


@pytest.mark.parametrize("fn", [asynchronous, functools.partial(asynchronous, a=1), sync_over_async, async_over_sync])
def test_async_is_seen_through_partials_and_decorators(fn: Callable[..., Any]) -> None:
    """What was written with `async def` counts as async, however it is wrapped."""
    assert codec.is_async(fn)


@pytest.mark.parametrize("fn", [plain, functools.partial(plain, a=1), lambda: asynchronous(1)])
def test_a_plain_function_is_never_async(fn: Callable[..., Any]) -> None:
    """Not even one that returns an awaitable."""
    assert not codec.is_async(fn)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda *args: None, r"\*args cannot be checked"),
        (lambda **extra: None, r"\*\*extra cannot be checked"),
        (positional_only, "argument a is positional-only"),
        (generator, "generator"),
        (async_generator, "generator"),
        (print, "only a function"),
        (Point, "only a function"),
    ],
)
def test_signatures_that_cannot_be_stored_by_name_are_refused(fn: Any, says: str) -> None:
    """The error says what to change."""
    with pytest.raises(TypeError, match=says):
        codec.check_signature(fn)


def test_a_type_without_a_json_form_is_found_inside_others() -> None:
    """The error names the argument and the type."""
    with pytest.raises(TypeError, match="argument a has the type Callable"):
        codec.signature_decoder(takes_callback)


def test_a_default_is_the_very_object_the_function_has() -> None:
    """A run sees the same default as a direct call."""
    assert asdict(codec.signature_decoder(plain).decode('{"a":1}'))["b"] is SHARED


def test_a_partial_keeps_what_it_was_given() -> None:
    """Its own arguments become defaults."""
    assert asdict(codec.signature_decoder(functools.partial(plain, a=5)).decode("{}")) == {"a": 5, "b": SHARED}


def test_a_return_annotation_need_not_resolve() -> None:
    """It may exist for type checkers only."""
    assert asdict(codec.signature_decoder(returns_what_never_comes).decode('{"a":1}')) == {"a": 1}
