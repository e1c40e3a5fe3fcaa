"""`update`: bring advisories, EPSS or KEV in; what is not brought stays as it was, and a bad source changes nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from holdfast.extraction.advisories.builder import Builder, replacing
from holdfast.extraction.advisories.database import Origin
from holdfast.extraction.advisories.errors import SourceUnusable
from holdfast.extraction.advisories.feeds import Epss, Kev, read_kev
from holdfast.extraction.advisories.records import BadRecord, Record, read_record
from holdfast.extraction.advisories.sources import RECORDS_MAX, Document, Scores, label_of, local_copy, read, readable

REASONS_MAX = 50
_CLOCK_SLACK = timedelta(days=1)


class Updated(msgspec.Struct):
    advisories: int = 0
    """Records that were understood, withdrawn ones included."""
    withdrawn: int = 0
    epss: int = 0
    kev: int = 0
    skipped: dict[str, int] = {}
    """Reason -> how many records or rows."""
    not_covered: dict[str, int] = {}
    """Ecosystem that cannot be matched exactly -> how many records name it."""


def update(path: Path, sources: Sequence[str], *, now: datetime | None = None) -> Updated:
    """Several sources of advisories count as one; together they replace the advisories there were."""
    if not sources:
        raise SourceUnusable("Name at least one file, folder, zip or address to update from.")
    with replacing(path) as builder:
        bringing = _Bringing(builder, now or datetime.now(UTC))
        for source in sources:
            label = label_of(source)
            with local_copy(source) as local:
                empty = True
                for part in read(local, label):
                    bringing.take(part, label)
                    empty = False
            if empty:
                raise SourceUnusable(f"{label} holds no records, scores or catalogue; the database stays as it was.")
        return bringing.done()


class _Bringing:
    def __init__(self, builder: Builder, now: datetime) -> None:
        self._builder, self._now = builder, now
        self._digests: list[bytes] = []
        self._newest: datetime | None = None
        self._sources: dict[str, None] = {}
        self._seen_records = False
        self._skipped: Counter[str] = Counter()
        self._not_covered: Counter[str] = Counter()
        self._found = Updated()

    def take(self, part: Document | Scores, source: str) -> None:
        if isinstance(part, Scores):
            self._take_epss(part, source)
        elif part.content is None:
            self._seen_records = True
            self._skipped["too large"] += 1
        else:
            self._take_json(part.content, part.label, source)

    def done(self) -> Updated:
        if self._seen_records and not self._digests:
            raise SourceUnusable(f"No usable advisory was found ({self._reasons()}); the database stays as it was.")
        if self._digests:
            digest = hashlib.sha256(b"".join(sorted(self._digests))).hexdigest()[:12]
            version = f"{self._newest:%Y-%m-%d}.{digest}" if self._newest else digest
            self._builder.brought("advisories", self._origin(version, self._newest, len(self._digests), list(self._sources)))
        self._found.skipped = dict(self._skipped.most_common(REASONS_MAX))
        self._found.not_covered = dict(self._not_covered.most_common(REASONS_MAX))
        return self._found

    def _take_json(self, content: bytes, label: str, source: str) -> None:
        start = content[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start.startswith(b"["):
            try:
                parts = msgspec.json.decode(content, type=list[msgspec.Raw])
            except (msgspec.MsgspecError, RecursionError) as error:
                raise SourceUnusable(f"{label} is not valid JSON.") from error
            for part in parts:
                self._take_record(bytes(part), source)
        elif b'"catalogVersion"' in start and (kev := read_kev(content, label)):
            self._take_kev(kev, source)
        else:
            self._take_record(content, source)

    def _take_record(self, content: bytes, source: str) -> None:
        self._seen_records = True
        try:
            record = read_record(content)
        except BadRecord as error:
            self._skipped[str(error)] += 1
            return
        if len(self._digests) >= RECORDS_MAX:
            raise SourceUnusable(f"There are more than {RECORDS_MAX:,} advisories.")
        self._digests.append(hashlib.sha256(content).digest())
        self._sources[source] = None
        self._builder.add(record)
        self._count(record)

    def _count(self, record: Record) -> None:
        self._found.advisories += 1
        self._found.withdrawn += record.withdrawn
        if record.malformed:
            self._skipped["a package of a record is malformed"] += record.malformed
        for ecosystem in record.not_covered:
            if ecosystem in self._not_covered or len(self._not_covered) < REASONS_MAX:
                self._not_covered[ecosystem[:64]] += 1
        if record.modified and record.modified <= self._now + _CLOCK_SLACK:  # a date in the future would hide the real age
            self._newest = max(self._newest or record.modified, record.modified)

    def _take_epss(self, scores: Scores, source: str) -> None:
        epss = Epss(scores.stream, scores.label)
        with readable(scores.label):
            self._builder.add_epss(epss)
        self._found.epss += epss.rows
        if epss.skipped:
            self._skipped["not an EPSS row"] += epss.skipped
        self._builder.brought("epss", self._origin(epss.version, epss.dated, epss.rows, [source]))

    def _take_kev(self, kev: Kev, source: str) -> None:
        self._builder.add_kev(kev.cves)
        self._found.kev += len(kev.cves)
        if kev.skipped:
            self._skipped["not a KEV entry"] += kev.skipped
        self._builder.brought("kev", self._origin(kev.version, kev.dated, len(kev.cves), [source]))

    def _origin(self, version: str, dated: datetime | None, entries: int, sources: list[str]) -> Origin:
        return Origin(version, dated, self._now, entries, sources)

    def _reasons(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self._skipped.most_common(3)) or "none at all"
