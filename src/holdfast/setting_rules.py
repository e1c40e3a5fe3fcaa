"""What a setting must be and where it comes from: the words in which `settings.py` declares them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.errors import ConfigError
from holdfast.redact import redact

TEN_YEARS_SEC = 10 * 366 * 86_400.0


class Rule(NamedTuple):
    """What a value must be, and which environment variables hold it, strongest first."""

    env: tuple[str, ...]
    right: str
    """The end of the sentence *it must be …*."""
    least: float = 0.0
    most: float = TEN_YEARS_SEC
    whole: bool = False
    above_least: bool = False
    optional: bool = False
    env_scale: float = 1.0
    words: Callable[[str, Any], Any] | None = None
    """For what is no number: checks a value under its label."""


def also_bare(*names: str) -> tuple[str, ...]:
    """For settings that had a name before Holdfast: the old name is honoured where none with the prefix is set."""
    return tuple(f"HOLDFAST_{name}" for name in names) + names


def setting(default: object, rule: Rule, *, shown: bool = True) -> Any:
    return dataclasses.field(default=default, metadata={"rule": rule}, repr=shown)


def seconds(default: float | None, *env: str, zero: bool = False, milliseconds_in_env: bool = False) -> Any:
    right = f"a number of seconds {'of 0 or more' if zero else 'above 0'}, for example {default or 60:g}"
    if milliseconds_in_env:
        right += " (in the environment: milliseconds)"
    scale = 0.001 if milliseconds_in_env else 1.0
    return setting(default, Rule(env, right, above_least=not zero, optional=default is None, env_scale=scale))


def days(default: float, env: str) -> Any:
    return setting(default, Rule((env,), f"a number of days of 0 or more, for example {default:g}", most=36_600.0))


def count(default: int, *env: str) -> Any:
    return setting(
        default, Rule(env, f"a whole number of 1 or more, for example {default}", least=1, most=2**31 - 1, whole=True)
    )


def text(*env: str, right: str, chars_min: int = 1, secret: bool = False, pattern: str = ".+") -> Any:
    """A text that need not be given. The value of a secret is in no message and no repr."""

    def check(label: str, value: Any) -> str:
        if isinstance(value, str) and len(value) >= chars_min and re.fullmatch(pattern, value, re.DOTALL):
            return value
        shown = "" if secret else f" is {redact(repr(value))[:80]}:"
        raise ConfigError(f"{label}{shown} must be {right}.")

    return setting(None, Rule(env, right, optional=True, words=check), shown=not secret)


def one_of(default: str, env: str, *words: str) -> Any:
    right = " or ".join(words)

    def check(label: str, value: Any) -> str:
        if value not in words:
            raise ConfigError(f"{label} is {redact(repr(value))[:80]}: it must be {right}.")
        return str(value)

    return setting(default, Rule((env,), right, words=check))


def switch(env: str) -> Any:
    right = "true or false"

    def check(label: str, value: Any) -> bool:
        given = {"true": True, "1": True, "false": False, "0": False}.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(given, bool):
            raise ConfigError(f"{label} is {redact(repr(value))[:80]}: it must be {right}.")
        return given

    return setting(False, Rule((env,), right, words=check))
