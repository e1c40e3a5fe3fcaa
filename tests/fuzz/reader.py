"""A reader: a call of our real code with bytes that anybody may have written, and what must hold whatever they are."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import redact as redaction

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "tests" / "fuzz" / "found"
"""`found/READER/what-it-shows`: the smallest input that once broke a promise."""
FIXTURES = ROOT / "tests" / "fixtures" / "extraction"
SEED_BYTES_MAX = 20_000
SECRET = "QQ7zKp2mWx9Rt4Vb8Ny3Lc6Hd5"
"""What no input holds by itself; it must never come out of anything that redacts."""


class Reader(NamedTuple):
    name: str
    read: Callable[[bytes], None]
    """Returns where the input was taken, or refused as it should be; raises where a promise was broken."""
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
    """Parts of the language, for a fuzzer to put together."""
    bytes_max: int = 2_000


def samples(*patterns: str) -> tuple[bytes, ...]:
    """Fixtures as seeds, the small ones."""
    found = (place for pattern in patterns for place in sorted(FIXTURES.glob(pattern)))
    return tuple(data for place in found if len(data := place.read_bytes()) <= SEED_BYTES_MAX)


def text_of(data: bytes) -> str:
    """Also with lone surrogates, which arrive where somebody decodes file names or arguments."""
    return data.decode("utf-8", "surrogateescape")


def parts_of(data: bytes, count: int, separator: bytes = b"\n") -> list[bytes]:
    """So many, the last one with the rest; missing ones are empty."""
    parts = data.split(separator, count - 1)
    return parts + [b""] * (count - len(parts))


def chosen(data: bytes, names: list[str]) -> str:
    """The one that is named, or some one."""
    text = text_of(data)
    return text if text in names else names[sum(data) % len(names)]


def check_storable(value: Any) -> None:
    """Both databases take it: no NUL, no lone surrogate, no number that a column cannot hold."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            assert "\0" not in one, "NUL"
            one.encode()
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple | set):
            waiting += one
        elif isinstance(one, int):
            assert -(2**63) <= one < 2**63, "larger than 64 bits"


@contextlib.contextmanager
def only_our_own_rules() -> Iterator[None]:
    """Neither patterns of somebody else nor the secrets of this machine's environment."""
    kept = redaction._user_patterns, redaction._env_secrets
    redaction._user_patterns, redaction._env_secrets = (), ()
    try:
        yield
    finally:
        redaction._user_patterns, redaction._env_secrets = kept


class Scratch:
    """A folder for readers of files, made at the first need and emptied by whoever fills it."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def path(cls) -> Path:
        if cls._folder is None:
            base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            cls._folder = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-", dir=base)
        return Path(cls._folder.name)

    @classmethod
    @contextlib.contextmanager
    def holding(cls, name: str, data: bytes) -> Iterator[Path]:
        place = cls.path() / name
        place.write_bytes(data)
        try:
            yield cls.path()
        finally:
            place.unlink()
