"""Enrichment: how likely a vulnerability is used (EPSS), and whether it is known to be (KEV)."""

from __future__ import annotations

from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.steps.vuln_scan import is_about_feeds
from holdfast.pipeline import Done, Partial, StepUnavailable

MESSAGE = "Vulnerabilities enriched ({scored} with an EPSS score, {exploited} known to be exploited)"


async def enrich(context: ExtractionContext) -> Done:
    """The matcher joins the feeds by alias group as it matches; here their state is told."""
    matches, status = context.vulnerabilities, context.advisory_status
    if matches is None or status is None:
        raise StepUnavailable("Enrichment skipped (no scan with an advisory database)")
    scored = sum(one.epss is not None for one in matches.vulnerabilities)
    exploited = sum(bool(one.kev) for one in matches.vulnerabilities)
    reasons = [warning for warning in status.warnings if is_about_feeds(warning)]
    if reasons:
        return Partial(MESSAGE, reasons, scored=scored, exploited=exploited)
    return Done(MESSAGE, scored=scored, exploited=exploited)
