"""OWASP dep-scan as a second engine. It ends with 0 whatever happened: without a report it has failed."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.manifests.packages import identify_purl
from holdfast.extraction.manifests.source import shown
from holdfast.extraction.model import Vulnerability
from holdfast.extraction.steps.reading import read_report
from holdfast.pipeline import StepFailed, reason_line

SEVERITIES: dict[str, Literal["critical", "high", "medium", "low"]] = {
    "critical": "critical",
    "high": "high",
    "medium": "medium",
    "low": "low",
}


class _Affects(msgspec.Struct):
    ref: str = ""


class _Rating(msgspec.Struct):
    severity: str = ""
    score: float | None = None
    vector: str | None = None


class _Property(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Reported(msgspec.Struct, rename={"bom_ref": "bom-ref"}):
    id: str
    bom_ref: str = ""
    description: str = ""
    properties: list[_Property] = []
    affects: list[_Affects] = []
    ratings: list[_Rating] = []


class _Vdr(msgspec.Struct):
    vulnerabilities: list[_Reported] = []


async def scan_by_depscan(context: ExtractionContext) -> list[Vulnerability]:
    """By its report alone: it ends with 0 whatever happened."""
    bom = context.workspace / "depscan" / "sbom.cdx.json"
    bom.parent.mkdir(exist_ok=True)
    bom.write_bytes(context.reports["sbom.cdx.json"])
    # Never the folder of the SBOM itself: the report may bear the same name.
    reports = context.workspace / "depscan" / "reports"
    reports.mkdir(exist_ok=True)
    env = {"VDB_HOME": str(context.options.depscan_database), "NVD_START_YEAR": "1999"}
    # Less time than the step has: what the other engine found must not be lost with it.
    timeout = None if context.step.timeout is None else context.step.timeout * 0.9
    argv = ["depscan", "--no-banner", "-q", "--bom", str(bom), "-o", str(reports)]
    if context.options.profile == "research":
        # It may start programs of its own: the list of commands keeps it from those of the repository.
        argv += ["--profile", "research", "-i", str(context.folder)]
        env |= {"CDXGEN_ALLOWED_COMMANDS": "git"}
    result = await context.tool(argv, env=env, timeout=timeout)
    if result.killed_by == "timeout":
        raise StepFailed("dep-scan timed out")
    vdr = read_report(reports / "sbom.vdr.json", _Vdr)
    if vdr is None:
        why = "ran out of memory" if result.out_of_memory else reason_line(result)
        raise StepFailed(f"dep-scan failed: {why}")
    return read_vdr(vdr)


def read_vdr(vdr: _Vdr) -> list[Vulnerability]:
    found = []
    for one in vdr.vulnerabilities:
        for purl in _purls(one):
            rating = max(one.ratings, key=lambda rating: rating.score or 0, default=_Rating())
            found.append(
                Vulnerability(
                    id=shown(one.id),
                    purl=purl,
                    severity=SEVERITIES.get(rating.severity.lower(), "unknown"),
                    cvss_score=rating.score,
                    cvss_vector=shown(rating.vector) if rating.vector else None,
                    reachable=True if _is_reachable(one) else None,
                    summary=shown(one.description.strip().partition("\n")[0][:500]),
                )
            )
    return found


def _is_reachable(one: _Reported) -> bool:
    return any(told.name == "depscan:insights" and "Reachable" in told.value for told in one.properties)


def _purls(one: _Reported) -> list[str]:
    refs = [affected.ref for affected in one.affects] or [one.bom_ref.removeprefix(f"{one.id}/")]
    return sorted({identity.purl for ref in refs if (identity := identify_purl(ref)) is not None})
