"""What several steps need: reports that tools wrote, paths as they are in the repository, stable fingerprints."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.extraction.manifests.source import shown

REPORT_BYTES_MAX = 256 * 1024 * 1024
LINE_MAX = 2**31 - 1

Shape = TypeVar("Shape")


def read_report(path: Path, shape: type[Shape]) -> Shape | None:
    """None: the tool wrote none, or not what it should."""
    try:
        with open(path, "rb") as file:
            return parse_report(file.read(REPORT_BYTES_MAX + 1), shape)
    except OSError:
        return None


def parse_report(data: bytes | str, shape: type[Shape]) -> Shape | None:
    if len(data) > REPORT_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def path_in(checkout: Path, path: str) -> str:
    """A path as it is in the repository, whatever the tool made of it."""
    found = Path(path)
    for base in (checkout, checkout.resolve()):
        if found.is_absolute() and found.is_relative_to(base):
            return shown(found.relative_to(base).as_posix())
    return shown(found.as_posix().removeprefix("./"))


def line_number(told: int) -> int:
    """As a column of the database can hold it."""
    return min(max(told, 0), LINE_MAX)


class Ordinals:
    """Fingerprints that survive when code moves: the n-th of its kind, not the line."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], int] = {}

    def fingerprint(self, *words: str) -> str:
        number = self._seen[words] = self._seen.get(words, 0) + 1
        return hashlib.sha256(json.dumps([*words, number]).encode()).hexdigest()[:32]
