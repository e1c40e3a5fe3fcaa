"""JSON in and out: what arguments and results are stored as, and the refusal of what a database could not hold."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
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
    """The JSON of a value: plain types, dataclasses, attrs, msgspec and pydantic models, dates, UUIDs, decimals, enums, sets."""
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


def decode(data: str | bytes) -> Any:
    """Plain types from JSON."""
    try:
        return _decoder.decode(data)
    except RecursionError:
        raise NotJson("is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson(f"is not JSON ({_lower_first(str(error))})") from error


def signature_decoder(fn: Callable[..., Any]) -> msgspec.json.Decoder[msgspec.Struct]:
    """A decoder for the JSON object of a function's arguments; NameError or AttributeError where an annotation has no meaning yet.

    A TypeError names the parameter whose type JSON cannot be turned into.
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
            raise TypeError(f"argument {name} has the type {foreign.__qualname__}, which has no JSON form; pass an id or plain data")
        fields.append((name, hint) if parameter.default is parameter.empty else (name, hint, _default(parameter.default)))
    struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct, dec_hook=_from_json_types)


def unwrapped(fn: Callable[..., Any]) -> Any:
    """The function below partials and well-behaved decorators."""
    plain: Any = inspect.unwrap(fn)
    while isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    return plain


def _default(value: Any) -> Any:
    # A struct copies or refuses mutable defaults, a function shares them: the factory keeps what the function would do.
    return value if value is None or isinstance(value, bool | int | float | str) else msgspec.field(default_factory=lambda: value)


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
        if isinstance(node, types.CustomType) and not hasattr(node.cls, "model_validate"):
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


def _check_tree(root: Any) -> None:
    level = [root]
    for _ in range(DEPTH_MAX + 1):
        below: list[Any] = []
        for node in level:
            if isinstance(node, float):
                if not math.isfinite(node):
                    raise NotJson("contains NaN or Infinity, which JSON does not know; use None instead")
            elif isinstance(node, dict):
                below.extend(node.values())
            elif isinstance(node, list | tuple):
                below.extend(node)
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
    return wanted.model_validate(value)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


_encoder = msgspec.json.Encoder(enc_hook=_to_json_types)
_decoder = msgspec.json.Decoder()
