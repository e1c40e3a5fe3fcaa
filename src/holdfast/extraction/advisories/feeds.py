"""The two feeds beside the advisories: EPSS scores (a long CSV, read line by line) and CISA's KEV catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO, Any

import msgspec

from holdfast.extraction.advisories.errors import SourceUnusable
from holdfast.extraction.advisories.records import moment

LINE_BYTES_MAX = 4_096
ROWS_MAX = 5_000_000
_CVE = re.compile(r"CVE-\d{4}-\d{4,19}", re.ASCII)


class Epss:
    """Reads as it is iterated over: (cve, score, percentile)."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        self._stream, self._label = stream, label
        self.version = ""
        self.dated: datetime | None = None
        self.rows = 0
        self.skipped = 0

    def __iter__(self) -> Iterator[tuple[str, float, float]]:
        header = self._line()
        if header.startswith("#"):
            facts = dict(part.partition(":")[::2] for part in header.lstrip("#").split(","))
            self.version, self.dated = _label(facts.get("model_version", "")), moment(facts.get("score_date", ""))
            header = self._line()
        if header.split(",")[:3] != ["cve", "epss", "percentile"]:
            raise SourceUnusable(f"{self._label} is no EPSS file: its columns should be cve, epss and percentile.")
        for _ in range(ROWS_MAX):
            line = self._line()
            if not line:
                break
            row = _row(line)
            if row is None:
                self.skipped += 1
            else:
                self.rows += 1
                yield row
        if not self.rows:
            raise SourceUnusable(f"{self._label} holds no EPSS score.")

    def _line(self) -> str:
        """Empty at the end; a blank line comes back as a newline."""
        line = self._stream.readline(LINE_BYTES_MAX)
        if len(line) == LINE_BYTES_MAX:
            raise SourceUnusable(f"{self._label} is no EPSS file: it has a line of more than {LINE_BYTES_MAX} bytes.")
        return line.decode("utf-8", "replace").rstrip("\r\n") or ("\n" if line else "")


class Kev(msgspec.Struct):
    version: str
    dated: datetime | None
    cves: list[str]
    skipped: int


class _Kev(msgspec.Struct, rename="camel"):
    catalog_version: str
    vulnerabilities: list[Any]
    date_released: str = ""


def read_kev(content: bytes, label: str) -> Kev | None:
    """None: it is something else."""
    try:
        catalogue = msgspec.json.decode(content, type=_Kev)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    entries = [entry for entry in catalogue.vulnerabilities if isinstance(entry, dict)]
    cves = cves_among(str(entry.get("cveID")) for entry in entries)
    if not cves:
        raise SourceUnusable(f"{label} names no exploited vulnerability.")
    skipped = len(catalogue.vulnerabilities) - len(cves)
    return Kev(_label(catalogue.catalog_version), moment(catalogue.date_released), cves, skipped)


def _label(text: str) -> str:
    """As both databases and a terminal take it."""
    return "".join(sign for sign in text[:64] if sign.isprintable())


def is_cve(text: str) -> bool:
    return _CVE.fullmatch(text) is not None


def cves_among(names: Iterable[str]) -> list[str]:
    return [name for name in names if is_cve(name)]


def _row(line: str) -> tuple[str, float, float] | None:
    cells = line.split(",")
    try:
        cve, score, percentile = cells[0], float(cells[1]), float(cells[2])
    except (IndexError, ValueError):
        return None
    return (cve, score, percentile) if is_cve(cve) and 0 <= score <= 1 and 0 <= percentile <= 1 else None
