"""Vulnerability scan: our own matcher over the advisory database, and dep-scan beside it where its database is mounted."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.extraction.advisories import DatabaseUnavailable, Matcher, Matches, Status
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.model import Vulnerability
from holdfast.extraction.steps.depscan import scan_by_depscan
from holdfast.pipeline import Done, Failure, Partial, StepFailed, StepUnavailable, ToolMissing

TITLE = "Vulnerability scan"
MESSAGE = "Vulnerability scan complete - found {vulnerabilities} vulnerabilities ({critical} critical)"
FAILURES = [Failure(on="timeout", message="Vulnerability scan timed out")]


async def scan_vulnerabilities(context: ExtractionContext) -> Done:
    reasons: list[str] = []
    matches = await _by_matcher(context, reasons)
    told = await _by_depscan(context, reasons)
    if matches is None and told is None:
        raise StepUnavailable(f"Vulnerability scanning unavailable ({'; '.join(reasons)})")
    if matches is None:
        matches = Matches()
    matches.vulnerabilities = joined(matches.vulnerabilities, told or [])
    context.vulnerabilities = matches
    critical = sum(one.severity == "critical" for one in matches.vulnerabilities)
    counts = {"vulnerabilities": len(matches.vulnerabilities), "critical": critical, "checked": matches.checked}
    reasons += matches.warnings
    if context.keeper is not None:
        await context.keeper.save_scan("vulnerabilities", matches.vulnerabilities, details=_details(context, matches))
    return Partial(MESSAGE, reasons, **counts) if reasons else Done(MESSAGE, **counts)


def _details(context: ExtractionContext, matches: Matches) -> dict[str, Any]:
    """With which advisories, how old: a number found means little without it."""
    status = context.advisory_status
    return {
        "advisory_version": status.advisories.version if status and status.advisories else None,
        "age_days": status.age_days if status else {},
        "checked": matches.checked,
        "not_covered": matches.not_covered,
        "unjudged": matches.unjudged,
    }


async def _by_matcher(context: ExtractionContext, reasons: list[str]) -> Matches | None:
    path = context.options.advisories
    if path is None:
        reasons.append("no advisory database is set; `holdfast advisories update SOURCE` makes one")
        return None

    def match() -> tuple[Matches, Status]:
        with Matcher(path) as matcher:
            return matcher.match(context.inventory.components), matcher.status()

    try:
        matches, status = await asyncio.to_thread(match)
    except DatabaseUnavailable as error:
        reasons.append(str(error).rstrip("."))
        return None
    context.advisory_status = status
    reasons += [warning for warning in status.warnings if not is_about_feeds(warning)]
    return matches


def is_about_feeds(warning: str) -> bool:
    """Those of EPSS and KEV belong to the next step."""
    return "EPSS" in warning or "KEV" in warning


async def _by_depscan(context: ExtractionContext, reasons: list[str]) -> list[Vulnerability] | None:
    research = context.options.profile == "research"
    if context.options.depscan_database is None:
        reasons += ["Reachability unavailable (no database of dep-scan is mounted)"] if research else []
        return None
    try:
        found = await scan_by_depscan(context)
        if research and found and not any(one.reachable for one in found):
            reasons.append("Reachability unavailable")
        return found
    except ToolMissing:
        reasons.append("dep-scan not installed")
    except StepFailed as error:
        reasons.append(str(error))
    return None


def joined(ours: list[Vulnerability], theirs: list[Vulnerability]) -> list[Vulnerability]:
    """Theirs count where no name of theirs is known to us for the same package."""
    known = {(one.purl, name) for one in ours for name in (one.id, *one.aliases)}
    new = [one for one in theirs if not any((one.purl, name) in known for name in (one.id, *one.aliases))]
    reached = {(one.purl, name) for one in theirs if one.reachable for name in (one.id, *one.aliases)}
    told = [
        msgspec.structs.replace(one, reachable=True)
        if any((one.purl, name) in reached for name in (one.id, *one.aliases))
        else one
        for one in ours
    ]
    return sorted([*told, *new], key=lambda one: (one.purl, one.id))
