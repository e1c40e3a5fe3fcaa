"""What a retry need not do again: scans whose result is in the database, of the same commit, by the same rules.

The clone and the SBOM always run: their results are files, and those are gone with the attempt that made them."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import msgspec

from holdfast.extraction.advisories import Matches, status
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.sbom import fingerprint

FILES_MAX = 10_000


def of_vulnerabilities(context: ExtractionContext) -> Any:
    options = context.options
    databases = [_stamp(options.advisories), _stamp(options.depscan_database), options.profile]
    return [*_of_code(context), fingerprint(context.inventory.components), *databases]


def of_findings(context: ExtractionContext) -> Any:
    return [*_of_code(context), context.options.semgrep, _stamp(context.options.rules)]


def of_secrets(context: ExtractionContext) -> Any:
    return [*_of_code(context), context.options.full_history]


def _of_code(context: ExtractionContext) -> list[str]:
    """Files of a folder, or without a commit, may be others now: never the same twice."""
    is_clone = context.checkout.is_relative_to(context.workspace)
    same = context.commit if context.commit and is_clone else uuid.uuid4().hex
    return [same, context.project.source, context.project.path]


def _stamp(path: Path | None) -> str:
    """Another one when what lies there has changed."""
    if path is None:
        return ""
    try:
        files = [path] if path.is_file() else sorted(path.rglob("*"))[:FILES_MAX]
        return repr([(str(one), found.st_size, found.st_mtime_ns) for one in files for found in (one.stat(),)])
    except OSError:
        return uuid.uuid4().hex


async def recall_vulnerabilities(context: ExtractionContext) -> bool:
    kept = await _kept(context, "vulnerabilities")
    if kept is None:
        return False
    rows, details = kept
    known = {name: details[name] for name in ("checked", "not_covered", "unjudged") if name in details}
    context.vulnerabilities = msgspec.convert(known, Matches)
    context.vulnerabilities.vulnerabilities = rows
    if details.get("advisory_version") is not None and context.options.advisories is not None:
        context.advisory_status = await asyncio.to_thread(status, context.options.advisories)
    return True


async def recall_findings(context: ExtractionContext) -> bool:
    kept = await _kept(context, "findings")
    if kept is not None:
        context.findings = kept[0]
    return kept is not None


async def recall_secrets(context: ExtractionContext) -> bool:
    kept = await _kept(context, "secrets")
    if kept is not None:
        context.secrets = kept[0]
    return kept is not None


async def _kept(context: ExtractionContext, kind: Any) -> tuple[list[Any], dict[str, Any]] | None:
    return None if context.keeper is None else await context.keeper.load(kind)
