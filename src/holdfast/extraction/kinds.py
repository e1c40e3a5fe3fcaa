"""The kinds of results: how a row is told apart from others, recognised in the next run, and named to people (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.extraction.model import Component, Finding, Report, Secret, Vulnerability
from holdfast.pipeline import redact

KindName = Literal["dependencies", "vulnerabilities", "findings", "secrets", "reports"]
Row = Component | Vulnerability | Finding | Secret | Report
T = TypeVar("T", bound=Row)


@dataclass(frozen=True, slots=True)
class Kind:
    name: KindName
    type: type[Any]
    step: str
    """The step of the pipeline that looks for it."""
    key: Callable[[Any], Sequence[Any]]
    """No two rows of a project have the same."""
    fingerprint: Callable[[Any], str]
    """The same in the next run, if it is the same thing."""
    label: Callable[[Any], str]
    public: Callable[[Any], Any] = lambda row: row
    """The row without what it may have picked up of the code it points at."""

    def stored(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """As the database takes them; the last of two with the same key."""
        found = {}
        for row in map(self.public, rows):
            key = _digest(self.key(row))
            found[key] = {**msgspec.to_builtins(row), "key": key, "fingerprint": self.fingerprint(row)}
        return list(found.values())

    def seen(self, rows: Sequence[Row]) -> dict[str, str]:
        return {self.fingerprint(row): self.label(row) for row in rows}

    def loaded(self, row: dict[str, Any]) -> Any:
        """A row of the database as what it is; lists are JSON text there, and truth is a number on SQLite."""
        fields = {field.name: field for field in msgspec.structs.fields(self.type)}
        values = {name: row[name] for name in fields if row.get(name) is not None}
        for name, value in values.items():
            if isinstance(fields[name].default_factory, type):
                values[name] = msgspec.json.decode(value)
        return msgspec.convert(values, self.type, strict=False)


def _digest(values: Sequence[Any]) -> str:
    return hashlib.sha256(repr(tuple(values)).encode("utf-8", "backslashreplace")).hexdigest()[:40]


def _without_version(purl: str) -> str:
    """A hole that a newer version still has is the same hole."""
    path, at, _ = purl.rpartition("@")
    return path if at and "/" in path else purl


def _public_finding(one: Finding) -> Finding:
    """Rules quote the code they match, and that may be a password."""
    return msgspec.structs.replace(one, message=redact(one.message))


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "dependencies",
            Component,
            "deps_sync",
            key=lambda one: (one.manifest, one.purl),
            fingerprint=lambda one: one.purl,
            label=lambda one: one.purl,
        ),
        Kind(
            "vulnerabilities",
            Vulnerability,
            "vuln_scan",
            key=lambda one: (one.id, one.purl),
            fingerprint=lambda one: f"{one.id} {_without_version(one.purl)}",
            label=lambda one: f"{one.id} in {_without_version(one.purl)}",
        ),
        Kind(
            "findings",
            Finding,
            "semgrep",
            key=lambda one: (one.fingerprint, one.rule, one.path, one.line),
            fingerprint=lambda one: one.fingerprint,
            label=lambda one: f"{one.rule} in {one.path}",
            public=_public_finding,
        ),
        Kind(
            "secrets",
            Secret,
            "trufflehog",
            key=lambda one: (one.fingerprint, one.kind, one.path, one.line, one.commit),
            fingerprint=lambda one: one.fingerprint,
            label=lambda one: f"{one.kind} in {one.path}",
        ),
        Kind(
            "reports",
            Report,
            "uploading",
            key=lambda one: (one.name,),
            fingerprint=lambda one: one.name,
            label=lambda one: one.name,
        ),
    )
}
