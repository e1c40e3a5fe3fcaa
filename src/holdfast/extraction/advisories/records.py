"""OSV records as strangers write them: every part that makes sense is used, and the rest is counted by its reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from holdfast.extraction.advisories.cvss import SEVERITIES, VECTOR_CHARS_MAX, Severity, base_score, severity_of
from holdfast.extraction.advisories.ranges import KINDS, Affected, Range
from holdfast.extraction.advisories.versions import COVERED, VERSION_CHARS_MAX, base_ecosystem, fold_name, fold_version

RECORD_BYTES_MAX = 16 * 1024 * 1024
AFFECTED_MAX = 5_000
RANGES_MAX = 500
EVENTS_MAX = 2_000
VERSIONS_MAX = 20_000
ALIASES_MAX = 64
NAME_CHARS_MAX = 256
SUMMARY_CHARS_MAX = 300
_LABELS: dict[str, Severity] = {"critical": "critical", "high": "high", "moderate": "medium", "medium": "medium", "low": "low"}

Shape = TypeVar("Shape")


class BadRecord(Exception):
    """Not an OSV record, or one beyond all bounds; the text is a short reason without anything of the record in it."""


class Advisory(msgspec.Struct, frozen=True, array_like=True):
    """What is told of an advisory that holds."""

    id: str
    summary: str
    severity: Severity
    cvss_score: float | None
    cvss_vector: str | None


class Record(msgspec.Struct, frozen=True):
    advisory: Advisory
    modified: datetime | None
    withdrawn: bool
    aliases: list[str]
    affected: list[tuple[str, str, Affected]]
    """(ecosystem, folded name, which versions)"""
    not_covered: list[str]
    """Ecosystems whose versions have no exact order here."""
    malformed: int
    """Packages that nobody can make out."""


class _Package(msgspec.Struct):
    ecosystem: str
    name: str


class _Range(msgspec.Struct):
    type: str
    events: list[dict[str, Any]]


class _Severity(msgspec.Struct):
    type: str
    score: str


class _Affected(msgspec.Struct):
    package: _Package | None = None
    """None: of commits alone, which no package manager knows."""
    ranges: msgspec.Raw = msgspec.Raw(b"[]")
    versions: msgspec.Raw = msgspec.Raw(b"[]")
    severity: msgspec.Raw = msgspec.Raw(b"[]")


class _Label(msgspec.Struct):
    severity: str = ""


class _Record(msgspec.Struct):
    id: str
    affected: list[msgspec.Raw] = []
    modified: msgspec.Raw = msgspec.Raw(b'""')
    withdrawn: msgspec.Raw = msgspec.Raw(b"null")
    aliases: msgspec.Raw = msgspec.Raw(b"[]")
    summary: msgspec.Raw = msgspec.Raw(b'""')
    severity: msgspec.Raw = msgspec.Raw(b"[]")
    database_specific: msgspec.Raw = msgspec.Raw(b"{}")


def read_record(content: bytes | msgspec.Raw) -> Record:
    if len(bytes(content)) > RECORD_BYTES_MAX:
        raise BadRecord("too large")
    raw = _decoded(content, _Record, None)
    if raw is None:
        raise BadRecord("not an OSV record")
    if not is_name(raw.id):
        raise BadRecord("without a usable id")
    if len(raw.affected) > AFFECTED_MAX:
        raise BadRecord("names too many packages")
    parts = [_decoded(part, _Affected, None) for part in raw.affected]
    packages = [part for part in parts if part is not None and part.package is not None]
    aliases = [alias for alias in _decoded(raw.aliases, list[Any], []) if is_name(alias)]
    return Record(
        advisory=_advisory(raw, packages),
        modified=moment(_decoded(raw.modified, str, "")),
        withdrawn=bytes(raw.withdrawn).strip() not in (b"null", b'""'),
        aliases=sorted(set(aliases))[:ALIASES_MAX],
        affected=list(_affected(packages)),
        not_covered=sorted({eco for part in packages if (eco := base_ecosystem(_named(part).ecosystem)) not in COVERED}),
        malformed=parts.count(None),
    )


def is_name(text: object) -> bool:
    """May it be an identifier: short, printable, without blanks?"""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARS_MAX and text.isprintable() and " " not in text


def _affected(packages: list[_Affected]) -> Iterator[tuple[str, str, Affected]]:
    for part in packages:
        ecosystem, name = base_ecosystem(_named(part).ecosystem), _named(part).name
        if ecosystem not in COVERED or not is_name(name):
            continue
        try:
            affected = Affected(_versions(part.versions, ecosystem), _ranges(part.ranges))
        except BadRecord as error:
            affected = Affected(unreadable=str(error))
        if not (affected.versions or affected.ranges or affected.unreadable):
            affected = Affected(unreadable="the advisory names neither versions nor a range that can be compared")
        yield ecosystem, fold_name(ecosystem, name), affected


def _named(part: _Affected) -> _Package:
    assert part.package is not None
    return part.package


def _versions(raw: msgspec.Raw, ecosystem: str) -> list[str]:
    versions = _decoded(raw, list[str] | None, ...)
    if not isinstance(versions, list | None):
        raise BadRecord("the advisory's list of versions is malformed")
    if versions and len(versions) > VERSIONS_MAX:
        raise BadRecord("the advisory lists too many versions")
    return sorted({fold_version(ecosystem, version) for version in versions or [] if len(version) <= VERSION_CHARS_MAX})


def _ranges(raw: msgspec.Raw) -> list[Range]:
    parts = _decoded(raw, list[_Range] | None, ...)
    if not isinstance(parts, list | None):
        raise BadRecord("a range of the advisory is malformed")
    ranges = [_range(part) for part in parts or [] if part.type != "GIT"]
    if len(ranges) > RANGES_MAX or sum(len(part.events) for part in ranges) > EVENTS_MAX:
        raise BadRecord("the advisory has too many ranges")
    return ranges


def _range(part: _Range) -> Range:
    events = [(kind, event[kind]) for event in part.events[: EVENTS_MAX + 1] for kind in KINDS if kind in event]
    if part.type not in ("SEMVER", "ECOSYSTEM") or not all(isinstance(text, str) for _, text in events):
        raise BadRecord("a range of the advisory is malformed")
    if not any(kind == "introduced" for kind, _ in events):
        raise BadRecord("a range of the advisory has no beginning")
    return Range(part.type == "SEMVER", events)


def _advisory(raw: _Record, packages: list[_Affected]) -> Advisory:
    """The worst score of the record and of its packages decides; without one, the word of the database does."""
    given = [raw.severity, *(part.severity for part in packages)]
    vectors = [entry.score for part in given for entry in _decoded(part, list[_Severity] | None, None) or []]
    scores = {vector: score for vector in vectors if (score := base_score(vector)) is not None}
    vector = max(scores, key=scores.__getitem__, default=None)
    label = _decoded(raw.database_specific, _Label | None, None)
    severity = severity_of(scores[vector]) if vector else _LABELS.get(label.severity.lower() if label else "", SEVERITIES[0])
    others = [vector for vector in vectors if vector.startswith("CVSS:") and len(vector) <= VECTOR_CHARS_MAX]
    summary = "".join(sign if sign.isprintable() else " " for sign in _decoded(raw.summary, str, "")[:SUMMARY_CHARS_MAX])
    return Advisory(raw.id, summary.strip(), severity, scores.get(vector or ""), vector or next(iter(others), None))


def moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _decoded(content: bytes | msgspec.Raw, shape: Any, otherwise: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return otherwise
