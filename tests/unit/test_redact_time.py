"""Redaction takes time in proportion to the text, whatever the text: somebody else may have written it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import redact as module
from holdfast.redact import redact, redact_json, redact_value

SHORT = 25_000
TIMES = 8
PROPORTIONATE = 3
"""Eight times the text may take three times eight times as long, on a machine that others use too; a quadratic rule takes
eight times that."""

PIECES = [
    "ghp_", "ghp_abcd ", "ghp_aaaaaaaaaaaaaaaaaaaaaaa.", "github_pat_", "glpat-", "glpat-aaaa.", "xox", "xoxa-",
    "xoxa.xoxa", "xapp-", "hooks.slack.com/", "hooks.slack.com/aaaaaaaaaa", "AKIA", "AKIAAAAAAAAAAAAAAAAA",
    "ASIA0123456789ABCDE ", "eyJ", "eyJ.", "eyJabcdefgh ", "eyJabcdefgh.", "eyJabcdefgh-", "://", "://a:", "://a:b@",
    "://a", "a:", "@", "://aaaaaaaaaaaaaaaaaaaa ", "%3a%2f%2f", "%3A%2F%2Fa%3A", "%3a", "%40", "-----BEGIN ",
    "-----BEGIN A PRIVATE KEY-----", "-----BEGIN AAAA BBBB CCCC ", "-----BEGIN PRIVATE KEY-----\n-----END X-----",
    "-----END ", "-----", "authorization", "authorization:", "authorization:   ", 'AUTHORIZATION="',
    "authorization: token ", "authorization: x\\", "bearer", "bearer ", "bearer    ", "BeArEr \t", "bearer%20",
    "basic ", "basic   ", "Basic aB34", "Basic aB34+", "secret", "secret_access_key", "secret_access_key=",
    "session token   ", "session_token=", "password", "api", "private-", " ", "\n", "\\", '"', ".", "-", "a", "A1b2",
    "é", "İ", "日", "[REDACTED]",
]  # fmt: skip
BEGINNINGS = [
    "",
    "://",
    "://u:",
    "eyJ",
    "Bearer ",
    "Basic ",
    "authorization: ",
    "ghp_",
    "%3A%2F%2Fu%3A",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.fixture(autouse=True)
def only_our_own_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither patterns of other tests nor this machine's environment."""
    monkeypatch.setattr(module, "_user_patterns", ())
    monkeypatch.setattr(module, "_env_secrets", ("aaaaaaaaaaaaaaaaaaab", "eyJeyJeyJeyJeyJeyX"))
    yield


def ratio(work: Callable[[Any], object], long: Any, short: Any, most: float = PROPORTIONATE * TIMES) -> float:
    """How many times as long the long one takes. What seems too much is measured again: others may have used the caches."""
    for _ in range(4):
        found = seconds(work, long) / seconds(work, short)
        if found < most:
            break
    return found


def seconds(work: Callable[[Any], object], text: Any) -> float:
    """Of the processor, the best of three."""
    found = []
    for _ in range(3):
        started = time.process_time()
        work(text)
        found.append(time.process_time() - started)
    return max(min(found), 0.0005)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_eight_times_the_text_takes_about_eight_times_as_long(beginning: str) -> None:
    """Every piece that a rule begins with or stumbles over, behind everything that a rule can begin with."""
    slow = []
    for piece in PIECES:
        short, long = (beginning + piece * (size // len(piece)) for size in (SHORT, TIMES * SHORT))
        times = ratio(redact, long, short)
        if times >= PROPORTIONATE * TIMES:
            slow.append(f"{piece!r}: {times:.0f}")
    assert slow == []


@pytest.mark.parametrize("piece", ['"a",', '"password",', '{"token":1},', '"\\n",', '"eyJ",', '"://",'])
def test_json_of_eight_times_the_size_takes_about_eight_times_as_long(piece: str) -> None:
    """Also where it must be read, because a key or an escape could hide something."""
    short, long = (f"[{(piece * (size // len(piece)))[:-1]}]".encode() for size in (SHORT, TIMES * SHORT))
    assert ratio(redact_json, long, short) < PROPORTIONATE * TIMES


def test_a_value_nested_ten_thousand_deep_takes_no_longer_than_its_first_levels() -> None:
    """Secret names at every level: the first one ends it."""

    def nested(levels: int) -> Any:
        value: Any = {}
        for _ in range(levels):
            value = {"tokens": [value, {"password": value}]}
        return value

    assert ratio(redact_value, nested(10_000), nested(1000), PROPORTIONATE) < PROPORTIONATE
