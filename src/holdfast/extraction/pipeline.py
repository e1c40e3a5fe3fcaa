"""The extraction pipeline, on one page."""

from __future__ import annotations

from dataclasses import replace

from holdfast.extraction import memory
from holdfast.extraction.context import Options
from holdfast.extraction.steps import cloning, sbom, secrets, semgrep, uploading, vuln_scan
from holdfast.extraction.steps.cloning import clone
from holdfast.extraction.steps.complete import complete
from holdfast.extraction.steps.deps_sync import sync_dependencies
from holdfast.extraction.steps.enrich import enrich
from holdfast.pipeline import Pipeline, Step

MINUTES = 60.0
RESEARCH_HOURS = 3

STEPS = [
    Step(
        "cloning",
        clone,
        timeout=5 * MINUTES,
        memory_mb=2048,
        starting="Cloning repository from {provider}...",
        failures=cloning.FAILURES,
    ),
    Step(
        "sbom",
        sbom.generate_sbom,
        timeout=5 * MINUTES,
        memory_mb=4096,
        starting="Generating software bill of materials...",
        title="SBOM generation",
        failures=sbom.FAILURES,
    ),
    Step(
        "deps_sync",
        sync_dependencies,
        timeout=5 * MINUTES,
        starting="Syncing dependencies to database...",
        title="Dependency sync",
    ),
    Step(
        "vuln_scan",
        vuln_scan.scan_vulnerabilities,
        critical=False,
        timeout=15 * MINUTES,
        memory_mb=4096,
        starting="Running vulnerability scan...",
        title=vuln_scan.TITLE,
        failures=vuln_scan.FAILURES,
        remember=memory.of_vulnerabilities,
        recall=memory.recall_vulnerabilities,
    ),
    Step("enrich", enrich, critical=False, timeout=5 * MINUTES, title="Enrichment"),
    Step(
        "semgrep",
        semgrep.analyse,
        critical=False,
        timeout=20 * MINUTES,
        memory_mb=4096,
        starting="Running static code analysis...",
        title=semgrep.TITLE,
        failures=semgrep.FAILURES,
        remember=memory.of_findings,
        recall=memory.recall_findings,
    ),
    Step(
        "trufflehog",
        secrets.scan_secrets,
        critical=False,
        timeout=10 * MINUTES,
        memory_mb=2048,
        starting="Scanning for exposed secrets...",
        title=secrets.TITLE,
        failures=secrets.FAILURES,
        remember=memory.of_secrets,
        recall=memory.recall_secrets,
    ),
    Step(
        "uploading",
        uploading.upload,
        critical=False,
        timeout=5 * MINUTES,
        starting="Uploading reports to storage...",
        title=uploading.TITLE,
    ),
    Step("complete", complete),
]


def steps_for(options: Options) -> list[Step]:
    """Whether code can be reached takes dep-scan hours to find out."""
    if options.profile != "research":
        return STEPS
    return [replace(step, timeout=RESEARCH_HOURS * 60 * MINUTES) if step.name == "vuln_scan" else step for step in STEPS]


def extraction_pipeline(options: Options | None = None) -> Pipeline:
    """For `await extraction_pipeline().run(ExtractionContext(…))`, inside a task."""
    return Pipeline(steps_for(options or Options()))
