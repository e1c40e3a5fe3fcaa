"""Does an advisory hold for a version? The algorithm of the OSV schema, on the ranges and versions of one package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.extraction.advisories.errors import NotComparable
from holdfast.extraction.advisories.versions import SEMVER, fold_version, installed, parse

Kind = Literal["introduced", "fixed", "last_affected", "limit"]
KINDS: tuple[Kind, ...] = ("introduced", "fixed", "last_affected", "limit")
FROM_THE_START = "0"
NO_LIMIT = "*"


class Range(msgspec.Struct, frozen=True, array_like=True):
    semver: bool
    """Ordered by Semantic Versioning rather than by the rules of the ecosystem."""
    events: list[tuple[Kind, str]]


class Affected(msgspec.Struct, frozen=True, array_like=True):
    """What one advisory says about one package."""

    versions: list[str] = []
    """Folded."""
    ranges: list[Range] = []
    unreadable: str = ""
    """Why nobody can tell which versions are meant; empty where that is clear."""


class Verdict(msgspec.Struct, frozen=True):
    affected: bool
    fixed_in: list[str] = []
    """The next fixed version of each range that holds the version."""


def judge(affected: Affected, ecosystem: str, version: str) -> Verdict:
    """Raises `NotComparable` where the answer would be a guess; what is certainly affected is so whatever else is unclear."""
    version = installed(ecosystem, version)
    listed = fold_version(ecosystem, version) in affected.versions
    held, fixes, unclear = False, [], affected.unreadable
    for part in affected.ranges:
        try:
            inside, fix = _inside(part, ecosystem, version)
        except NotComparable as error:
            unclear = unclear or f"version {error} cannot be compared"
            continue
        held = held or inside
        if inside and fix and fix not in fixes:
            fixes.append(fix)
    if listed or held:
        return Verdict(True, fixes)
    if unclear:
        raise NotComparable(unclear)
    return Verdict(False)


def _inside(part: Range, ecosystem: str, text: str) -> tuple[bool, str | None]:
    order = SEMVER if part.semver else ecosystem
    version = parse(order, text)
    limits = [limit for kind, limit in part.events if kind == "limit"]
    if limits and not any(limit == NO_LIMIT or version < parse(order, limit) for limit in limits):
        return False, None
    affected = False
    events = _in_order(part, order)
    for kind, _, at in events:
        if kind == "introduced" and (at is None or version >= at):
            affected = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            affected = False
    fix = next((text for kind, text, at in events if kind == "fixed" and at > version), None)
    return affected, fix if affected else None


def _in_order(part: Range, order: str) -> list[tuple[Kind, str, Any]]:
    """By version; events at the same version stay as the record has them."""
    first = [(kind, text, None) for kind, text in part.events if kind == "introduced" and text == FROM_THE_START]
    others = [
        (kind, text, parse(order, text))
        for kind, text in part.events
        if kind != "limit" and not (kind == "introduced" and text == FROM_THE_START)
    ]
    return [*first, *sorted(others, key=lambda event: event[2])]
