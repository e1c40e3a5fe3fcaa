"""What people look at: an organization's projects, what the newest extraction of one found, and the rows page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast import Holdfast
from holdfast.errors import InvalidOption
from holdfast.extraction.kinds import KINDS
from holdfast.extraction.repositories import Repository, looked_at, up_to_date
from holdfast.extraction.results import Scan, read_scan
from holdfast.extraction.sql import Statements

ListedKind = Literal["dependencies", "vulnerabilities", "findings", "secrets"]
LISTED: tuple[ListedKind, ...] = ("dependencies", "vulnerabilities", "findings", "secrets")
PAGE_MAX = 200
DIFFERENCE_MAX = 100
SEARCH_CHARS_MAX = 200


class Counted(msgspec.Struct, kw_only=True):
    """One kind of result in one number; `count` is None where it was not scanned, for the `reason`."""

    scanned: bool
    reason: str | None
    count: int | None


class Overview(msgspec.Struct, kw_only=True):
    """One project of the list."""

    repository: Repository
    scans: dict[str, Counted] = {}
    """By kind; a kind that is missing was never reached."""
    severities: dict[str, int] = {}
    """Vulnerabilities by severity; empty where none were found, or they were not scanned."""


class Change(msgspec.Struct, kw_only=True):
    """To the last run before that looked for the same kind; the lists stop after the first hundred."""

    to_run: int
    added: list[str]
    added_count: int
    gone: list[str]
    gone_count: int
    unchanged: int


class ScanSummary(msgspec.Struct, kw_only=True):
    scanned: bool
    reason: str | None
    count: int | None
    run: int
    job_id: str
    saved_at: Any
    details: dict[str, Any]
    difference: Change | None
    """None: there is nothing to compare with."""


class Summary(msgspec.Struct, kw_only=True):
    """All about the newest result but the rows themselves."""

    repository: Repository
    scans: dict[str, ScanSummary]
    not_scanned: dict[str, str]
    """Kind -> why. What is here has no number, not even 0."""
    severities: dict[str, int]
    pending_enrichment: int


class Page(msgspec.Struct, kw_only=True):
    """Rows of one kind. `scanned` is false where there are none because nobody has looked."""

    scanned: bool
    reason: str | None
    items: list[dict[str, Any]]
    next_cursor: str | None


async def overview(hf: Holdfast, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Overview]:
    """The organization's projects by name; `cursor` is the name of the last one seen."""
    async with hf.transaction() as tx:
        ask = Statements(hf, tx)
        rows = [Repository(**row) for row in await ask("repository_list", tenant, cursor, checked_limit(limit))]
        found = {row.id: Overview(repository=row) for row in rows}
        ids = msgspec.json.encode(list(found)).decode()
        for row in await ask("overview", ids):
            counted = Counted(scanned=bool(row["scanned"]), reason=row["reason"], count=row["count"])
            found[row["repository_id"]].scans[row["kind"]] = counted
        for row in await ask("overview_severities", ids):
            found[row["repository_id"]].severities[row["severity"]] = row["count"]
    for one in found.values():
        one.repository = await up_to_date(hf, one.repository)
    return list(found.values())


async def summary(hf: Holdfast, repository: Repository) -> Summary:
    async with hf.transaction() as tx:
        ask = Statements(hf, tx)
        await looked_at(ask, repository.tenant, repository.project)
        scans = {}
        for row in await ask("scan_newest", repository.id):
            scans[row["kind"]] = _bounded(await read_scan(ask, repository.id, KINDS[row["kind"]], row))
        severities = await ask("overview_severities", msgspec.json.encode([repository.id]).decode())
        pending = await ask("pending_count", repository.id)
    never: dict[str, str] = {kind: "No extraction has come so far" for kind in LISTED if kind not in scans}
    return Summary(
        repository=repository,
        scans=scans,
        not_scanned={**never, **{kind: one.reason or "" for kind, one in scans.items() if not one.scanned}},
        severities={row["severity"]: row["count"] for row in severities},
        pending_enrichment=pending[0]["count"],
    )


async def page(
    hf: Holdfast,
    repository: Repository,
    kind: ListedKind,
    *,
    search: str | None = None,
    severity: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """Worst first where there is a worst. `search` is a part of a name, path, id or message, in any case."""
    if kind not in LISTED:
        raise InvalidOption(f"kind must be one of {', '.join(LISTED)}.")
    if search is not None and (len(search) > SEARCH_CHARS_MAX or not search.isprintable()):
        raise InvalidOption(f"search must be at most {SEARCH_CHARS_MAX} characters that can be printed.")
    if severity is not None and kind not in ("vulnerabilities", "findings"):
        raise InvalidOption(f"{kind} have no severity.")
    checked_limit(limit)
    async with hf.transaction() as tx:
        ask = Statements(hf, tx)
        newest = {row["kind"]: row for row in await ask("scan_newest", repository.id)}.get(kind)
        if newest is None or not newest["scanned"]:
            reason = "No extraction has come so far" if newest is None else newest["reason"]
            return Page(scanned=False, reason=reason, items=[], next_cursor=None)
        rows = await ask(f"{kind}_page", repository.id, _opened(cursor), limit + 1, search, severity)
    shown = [_shown(kind, row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(scanned=True, reason=None, items=shown, next_cursor=_cursor(rows[limit - 1]["place"]) if more else None)


def _shown(kind: ListedKind, row: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(KINDS[kind].loaded(dict(row)))
    if kind == "dependencies":
        known = row["enrichment"]
        shown["enrichment"] = None if known is None else msgspec.json.decode(known)
    return shown


def _bounded(scan: Scan) -> ScanSummary:
    told = scan.difference
    change = None
    if told is not None:
        change = Change(
            to_run=told.to_run,
            added=told.added[:DIFFERENCE_MAX],
            added_count=len(told.added),
            gone=told.gone[:DIFFERENCE_MAX],
            gone_count=len(told.gone),
            unchanged=told.unchanged,
        )
    plain = {name: getattr(scan, name) for name in ("scanned", "reason", "count", "run", "job_id", "saved_at")}
    return ScanSummary(**plain, details=_short_lists(scan.details), difference=change)


def _short_lists(details: dict[str, Any]) -> dict[str, Any]:
    """Details may list every package that could not be judged; the export has them all."""
    return {name: value[:DIFFERENCE_MAX] if isinstance(value, list) else value for name, value in details.items()}


def _cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


def _opened(cursor: str | None) -> str:
    try:
        place = base64.urlsafe_b64decode(cursor or "").decode()
    except (binascii.Error, ValueError):
        raise InvalidOption("cursor must be the next_cursor of the page before.") from None
    if "\0" in place:
        raise InvalidOption("cursor must be the next_cursor of the page before.")
    return place


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidOption(f"limit must lie between 1 and {PAGE_MAX}, not {limit}")
    return limit
