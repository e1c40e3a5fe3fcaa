"""JSON in and out: what arguments and results are stored as, and the refusal of what a database could not hold."""

from __future__ import annotations

import functools
import inspect
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect as types

DEPTH_MAX = 200
"""SQLite reads no JSON deeper than 1,000 levels, and a worker's own stack may be deeper than the caller's."""

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL; a backslash that is itself escaped may stand before a harmless `u0000`."""


class NotJson(ValueError):
    """The value cannot be stored as JSON; the message is half a sentence that fits behind the value's name."""


def encode(value: Any) -> bytes:
    """The JSON of plain types, dataclasses, attrs, msgspec and pydantic models, dates, UUIDs, decimals, enums and sets."""
    try:
        data = _encoder.encode(value)
    except RecursionError:
        raise NotJson(f"contains itself or is nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeEncodeError:
        raise NotJson("contains a lone surrogate, which is not valid Unicode") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise NotJson(_lower_first(str(error))) from error
    # msgspec writes NaN and Infinity as null; only then, or where it may be too deep, is the slow walk worth its time.
    if b"null" in data or data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        _check_tree(msgspec.to_builtins(value, enc_hook=_to_json_types))
    if b"\\u0000" in data and _NUL.search(data):
        raise NotJson("contains a NUL character, which PostgreSQL cannot store")
    return data


def first_unencodable(named: Mapping[str, Any]) -> str:
    """Which argument `encode` refuses, and why."""
    for name, value in named.items():
        try:
            encode({name: value})
        except NotJson as error:
            return f"argument {name} {error}"
    return "the arguments cannot be stored as JSON"


def decode(data: str | bytes) -> Any:
    """Plain types from JSON."""
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise NotJson("is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson(f"is not JSON ({_lower_first(str(error))})") from error


def signature_decoder(fn: Callable[..., Any]) -> msgspec.json.Decoder[msgspec.Struct]:
    """A decoder for the JSON object of a function's arguments.

    Raises NameError or AttributeError where an annotation has no meaning yet, TypeError where JSON cannot become its type.
    """
    plain = unwrapped(fn)
    parameters = inspect.signature(fn).parameters
    annotations = {name: hint for name, hint in plain.__annotations__.items() if name in parameters}
    # Not the function itself: its return annotation may name what exists only for type checkers.
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), plain.__globals__, include_extras=True)
    fields: list[Any] = []
    for name, parameter in parameters.items():
        hint = hints.get(name, Any)
        if foreign := _foreign_type(hint):
            reason = f"has the type {foreign.__qualname__}, which has no JSON form; pass an id or plain data"
            raise TypeError(f"argument {name} {reason}")
        fields.append((name, hint) if parameter.default is parameter.empty else (name, hint, _default(parameter.default)))
    struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct, dec_hook=_from_json_types)


def unwrapped(fn: Callable[..., Any]) -> Any:
    """The function below partials and well-behaved decorators."""
    plain: Any = inspect.unwrap(fn)
    while isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    return plain


def is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(unwrapped(fn))


def is_importable(fn: Callable[..., Any]) -> bool:
    """Whether another process can find the function by its name: not one made inside another function."""
    return "<" not in unwrapped(fn).__qualname__


def check_signature(fn: Callable[..., Any]) -> None:
    """Raise TypeError, saying what to change, unless every argument can be stored by name and a result comes back once."""
    plain = unwrapped(fn)
    if not inspect.isfunction(plain):
        raise TypeError(f"only a function can be a task, not {reprlib.repr(fn)}")
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in (fn, plain)):
        raise TypeError("a generator cannot be a task; return a list instead of yielding")
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{parameter} cannot be checked or stored by name; name every argument")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"argument {name} is positional-only, but arguments are stored by name; remove the /")


def _default(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # A struct copies or refuses mutable defaults, a function shares them: the factory keeps what the function would do.
    return msgspec.field(default_factory=lambda: value)


def _foreign_type(hint: Any) -> Any:
    """The first type inside an annotation that JSON cannot be turned into, or None."""
    root = types.type_info(hint)
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, types.CustomType) and node.cls is not object and not hasattr(node.cls, "model_validate"):
            return node.cls
        for attribute in node.__struct_fields__:
            child = getattr(node, attribute)
            children = child if isinstance(child, tuple) else (child,)
            waiting.extend(c for c in children if isinstance(c, types.Type | types.Field))
    return None


_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")


def explain(error: Exception) -> str:
    """What a typed decoder found wrong, in the words of arguments: `argument order_id: expected int, got str`."""
    what, at, path = " ".join(str(error).split()).rpartition(" - at `")
    if at:
        return f"argument {path.rstrip('`').replace('$.', '')}: {_lower_first(what).replace('`', '')}"
    if missing := _MISSING.fullmatch(path):
        return f"argument {missing[1]} is missing"
    if unknown := _UNKNOWN.fullmatch(path):
        return f"there is no argument {unknown[1]}"
    return f"the arguments cannot be read: {_lower_first(path).replace('`', '')}"


# -- single values: each check returns what to keep, or raises ValueError with what would have been right ---------------

Check = Callable[[Any], Any]
SECONDS_MAX = 100 * 365 * 86400.0
CENTS_MAX = 1e12
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")


def text(chars_max: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= chars_max or "\0" in value or not _is_unicode(value):
            raise ValueError(f"text of 1 to {chars_max} characters without NUL")
        return value

    return check


def label(value: Any) -> str:
    """A name that also stands in addresses and in the labels of metrics."""
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise ValueError("1 to 100 of a-z, A-Z, 0-9 and _ . : - that begin with a letter or digit")
    return value


def whole(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return check


def seconds(least: float) -> Check:
    def check(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= SECONDS_MAX:
            raise ValueError(f"a number of seconds from {least:g} to {SECONDS_MAX:.0f} (100 years)")
        return float(value)

    return check


def cents(value: Any) -> float:
    """An amount of money; fractions are allowed, because calls may cost less than a cent."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= CENTS_MAX:
        raise ValueError(f"a number of cents from 0 to {CENTS_MAX:.0f}")
    return float(value)


def one_of(*values: Any) -> Check:
    def check(value: Any) -> Any:
        if not any(value is known or (type(value) is type(known) and value == known) for known in values):
            raise ValueError(" or ".join(repr(known) for known in values))
        return value

    return check


def several(check_one: Check, least: int, most: int) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise ValueError(f"a list of {least} to {most} items")
        try:
            return tuple(check_one(one) for one in value)
        except ValueError as wrong:
            raise ValueError(f"a list of {least} to {most} items, each {wrong}") from None

    return check


def moment(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ValueError("a datetime with a time zone, such as datetime.now(UTC)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("a datetime between the years 1 and 9999 in UTC") from None


def exception_type(value: Any) -> type[BaseException]:
    if not (isinstance(value, type) and issubclass(value, BaseException)):
        raise ValueError("an exception type")
    return value


def json_object(bytes_max: int) -> Check:
    def check(value: Any) -> dict[str, Any]:
        try:
            data = encode(value)
        except NotJson as error:
            raise ValueError(f"a JSON object (this one {error})") from None
        plain = decode(data)
        if not isinstance(plain, dict) or len(data) > bytes_max:
            raise ValueError(f"a JSON object of at most {bytes_max} bytes")
        return plain

    return check


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_tree(root: Any) -> None:
    level: list[Any] = [[root]]
    for _ in range(DEPTH_MAX + 1):
        below: list[Any] = []
        for container in level:
            for node in container.values() if isinstance(container, dict) else container:
                if isinstance(node, dict | list | tuple):
                    below.append(node)
                elif isinstance(node, float) and not math.isfinite(node):
                    raise NotJson("contains NaN or Infinity, which JSON does not know; use None instead")
        if not below:
            return
        level = below
    raise NotJson(f"is nested deeper than {DEPTH_MAX} levels")


def _to_json_types(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, msgspec.Raw):
        return decode(bytes(value))
    raise TypeError(f"contains a value of type {type(value).__qualname__}, which has no JSON form")


def _from_json_types(wanted: Any, value: Any) -> Any:
    return value if wanted is object else wanted.model_validate(value)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


_encoder = msgspec.json.Encoder(enc_hook=_to_json_types)
_decoder = msgspec.json.Decoder()
