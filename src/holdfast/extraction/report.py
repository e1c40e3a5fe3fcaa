"""What one extraction found, as JSON for programs and as SARIF 2.1.0 for code hosts and editors."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.model import Component, Finding, Secret, Vulnerability

LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "info": "note", "unknown": "warning"}
SCORES = {"critical": 9.5, "high": 8.0, "medium": 5.5, "low": 2.0, "info": 0.0, "unknown": 5.0}
"""For GitHub's `security-severity`, where an advisory has no score of its own."""


def results_of(context: ExtractionContext) -> dict[str, Any]:
    """Lists that were not scanned are null."""
    matches, status = context.vulnerabilities, context.advisory_status
    return {
        "source": context.project.source,
        "branch": context.project.branch,
        "path": context.project.path,
        "commit": context.commit,
        "steps": {
            name: {"status": one.status, "message": one.message, "reasons": one.reasons, "seconds": round(one.seconds, 3)}
            for name, one in context.outcomes.items()
        },
        "dependencies": context.inventory.components,
        "vulnerabilities": None if matches is None else matches.vulnerabilities,
        "unjudged": [] if matches is None else matches.unjudged,
        "advisories": None if status is None else {"version": _version(context), "age_days": status.age_days},
        "findings": context.findings,
        "secrets": context.secrets,
    }


def _version(context: ExtractionContext) -> str | None:
    status = context.advisory_status
    return status.advisories.version if status and status.advisories else None


def sarif_of(context: ExtractionContext) -> dict[str, Any]:
    matches = context.vulnerabilities
    return sarif(
        context.inventory.components, [] if matches is None else matches.vulnerabilities, context.findings, context.secrets
    )


def sarif(
    components: list[Component],
    vulnerabilities: list[Vulnerability],
    findings: list[Finding] | None,
    secrets: list[Secret] | None,
) -> dict[str, Any]:
    places: dict[str, list[str]] = {}
    for one in components:
        places.setdefault(one.purl, []).append(one.manifest)
    rules: dict[str, dict[str, Any]] = {}
    results = [_of_vulnerability(one, places.get(one.purl, []), rules) for one in vulnerabilities]
    results += [_of_finding(one, rules) for one in findings or []]
    results += [_of_secret(one, rules) for one in secrets or []]
    driver = {"name": "Holdfast", "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "utf16CodeUnits"}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _of_vulnerability(one: Vulnerability, manifests: list[str], rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    score = SCORES[one.severity] if one.cvss_score is None else one.cvss_score
    _rule(rules, one.id, one.summary or one.id, score)
    fix = f"; fixed in {', '.join(one.fixed_in)}" if one.fixed_in else ""
    text = f"{one.purl}: {one.summary or one.id}{fix}"
    return _result(one.id, LEVELS[one.severity], text, [(path, 1) for path in manifests if path], f"{one.id} {one.purl}")


def _of_finding(one: Finding, rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    _rule(rules, one.rule, one.message or one.rule, SCORES[one.severity])
    return _result(one.rule, LEVELS[one.severity], one.message or one.rule, [(one.path, one.line)], one.fingerprint)


def _of_secret(one: Secret, rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    name = f"secret/{one.kind}"
    _rule(rules, name, f"A secret lies open ({one.kind})", SCORES["high"])
    return _result(name, "error", f"A secret lies open ({one.kind})", [(one.path, one.line)], one.fingerprint)


def _rule(rules: dict[str, dict[str, Any]], name: str, text: str, score: float) -> None:
    properties = {"security-severity": f"{score:.1f}", "tags": ["security"]}
    rules.setdefault(name, {"id": name, "shortDescription": {"text": text}, "properties": properties})


def _result(rule: str, level: str, text: str, places: list[tuple[str, int]], fingerprint: str) -> dict[str, Any]:
    locations = [
        {"physicalLocation": {"artifactLocation": {"uri": path}, "region": {"startLine": max(1, line)}}}
        for path, line in places
    ]
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": locations,
        "partialFingerprints": {"holdfast/v1": fingerprint},
    }


def encoded(report: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1)
