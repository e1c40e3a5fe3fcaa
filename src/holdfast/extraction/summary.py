"""What an extraction found, in words for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.manifests.source import shown
from holdfast.extraction.model import Vulnerability
from holdfast.pipeline import Outcome

SEVERITIES = ["critical", "high", "medium", "low"]
ROWS_MAX = 20
MARKS = {"info": " ", "success": "✓", "warning": "!", "error": "✗"}
TOOLS = {
    "semgrep": "Semgrep (static analysis): pip install semgrep",
    "cdxgen": "cdxgen (SBOMs of more ecosystems): npm install --global @cyclonedx/cdxgen",
    "advisories": "Advisories: holdfast advisories update SOURCE",
    "trufflehog": "detect-secrets (secrets): pip install detect-secrets",
}


def line_of(line: Any) -> str:
    """A line of the run's log, and below it why a step did only a part."""
    seconds = None if line.duration_ms is None else line.duration_ms / 1000
    return _line(MARKS.get(line.level, " "), line.message, seconds, (line.metadata or {}).get("reasons") or [])


def line_of_outcome(outcome: Outcome) -> str:
    return _line("✓" if outcome.status == "ok" else "!", outcome.message, outcome.seconds, outcome.reasons)


def _line(mark: str, message: str, seconds: float | None, reasons: Sequence[Any]) -> str:
    took = "" if seconds is None or message.endswith(" s)") else f" ({seconds:.1f} s)"
    return "\n".join([f"{mark} {shown(message)}{took}", *(f"    {shown(str(reason))}" for reason in reasons)])


def count_from(found: ExtractionContext, severity: str) -> int:
    """How many are at least so severe; a secret that lies open counts as high."""
    wanted = SEVERITIES[: SEVERITIES.index(severity) + 1]
    matches = found.vulnerabilities
    all_severities: list[str] = [one.severity for one in matches.vulnerabilities] if matches else []
    all_severities += [one.severity for one in found.findings or []]
    all_severities += ["high"] * len(found.secrets or [])
    return sum(one in wanted for one in all_severities)


def lines_of(found: ExtractionContext) -> Iterator[str]:
    components = found.inventory.components
    by_kind = Counter(one.ecosystem for one in {one.purl: one for one in components}.values())
    yield ""
    yield _heading("Dependencies", f"{sum(by_kind.values())} ({', '.join(f'{n} {kind}' for kind, n in by_kind.items())})")
    matches = found.vulnerabilities
    if matches is None:
        yield _heading("Vulnerabilities", _not_scanned(found, "vuln_scan"))
    else:
        worst = sorted(matches.vulnerabilities, key=_rank)
        yield _heading("Vulnerabilities", _counted([one.severity for one in worst]))
        yield from _rows([_of_vulnerability(one) for one in worst])
    if found.findings is None:
        yield _heading("Static analysis", _not_scanned(found, "semgrep"))
    else:
        yield _heading("Static analysis", _counted([one.severity for one in found.findings]))
        yield from _rows([f"{one.severity:<9}{one.path}:{one.line}  {one.rule}" for one in found.findings])
    if found.secrets is None:
        yield _heading("Secrets", _not_scanned(found, "trufflehog"))
    else:
        history = "" if found.history_is_there else " (history not scanned)"
        yield _heading("Secrets", f"{len(found.secrets) or 'none'}{history}")
        yield from _rows([f"{one.path}:{one.line}  {one.kind}" for one in found.secrets])
    missing = [TOOLS[tool] for tool in _missing(found)]
    if missing:
        yield "\nWith these, more would be found:"
        yield from (f"  {line}" for line in missing)


def _missing(found: ExtractionContext) -> Iterator[str]:
    if not found.cdxgen_ran:
        yield "cdxgen"
    if found.vulnerabilities is None:
        yield "advisories"
    for step in ("semgrep", "trufflehog"):
        if (outcome := found.outcomes.get(step)) and outcome.status == "unavailable":
            yield step


def _heading(title: str, text: str) -> str:
    return f"{title:<17}{shown(text)}"


def _rows(rows: Sequence[str]) -> Iterator[str]:
    yield from (f"  {shown(row)}" for row in rows[:ROWS_MAX])
    if len(rows) > ROWS_MAX:
        yield f"  … and {len(rows) - ROWS_MAX} more; --json shows all"


def _not_scanned(found: ExtractionContext, step: str) -> str:
    outcome = found.outcomes.get(step)
    return f"not scanned: {outcome.message}" if outcome else "not scanned"


def _counted(severities: Sequence[str]) -> str:
    counts = Counter(severities)
    told = ", ".join(f"{counts[one]} {one}" for one in [*SEVERITIES, "info", "unknown"] if counts[one])
    return f"{len(severities)} ({told})" if severities else "none"


def _rank(one: Vulnerability) -> tuple[bool, int, float, str]:
    """Exploited ones first, then by severity."""
    place = SEVERITIES.index(one.severity) if one.severity in SEVERITIES else len(SEVERITIES)
    return not one.kev, place, -(one.epss or 0), one.id


def _of_vulnerability(one: Vulnerability) -> str:
    facts = [f"fixed in {', '.join(one.fixed_in)}"] if one.fixed_in else []
    facts += [f"EPSS {one.epss:.1%}"] if one.epss is not None else []
    facts += ["known to be exploited"] if one.kev else []
    return f"{one.severity:<9}{one.id}  {one.purl}  {'; '.join(facts)}".rstrip()
