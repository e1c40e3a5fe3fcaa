"""Secret scan: TruffleHog where it is installed, else kingfisher, else detect-secrets. The secret itself is never kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast import current
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.model import Secret
from holdfast.extraction.steps import secret_tools as tools
from holdfast.extraction.steps.reading import read_report
from holdfast.pipeline import Done, Failure, Partial, ToolFailed, ToolMissing

TITLE = "Secret scan"
FAILURES = [
    Failure(on="missing", message="Secret scan skipped (no secret scanner installed; `pip install detect-secrets` brings one)"),
    Failure(on="memory", message="Secret scan ran out of memory - scanning skipped"),
    Failure(on="timeout", message="Secret scan timed out"),
]

Scan = tuple[list[Secret], list[str]]


async def scan_secrets(context: ExtractionContext) -> Done:
    found, reasons = await _by_first_installed(context)
    context.secrets = found
    if not context.history_is_there:
        current().log.info("History not scanned (only the newest commit is here)", step=context.step.name)
    message = "Secret scan complete - {secrets} secrets found" if found else "Secret scan complete - no secrets found"
    counts = {"secrets": len(found), "history_scanned": int(context.history_is_there)}
    if context.keeper is not None:
        await context.keeper.save_scan("secrets", found, details=counts)
    return Partial(message, reasons, **counts) if reasons else Done(message, **counts)


async def _by_first_installed(context: ExtractionContext) -> Scan:
    engines: list[Callable[[ExtractionContext], Awaitable[Scan]]] = [_trufflehog, _kingfisher, _detect_secrets]
    missing: ToolMissing | None = None
    for engine in engines:
        try:
            return await engine(context)
        except ToolMissing as error:
            missing = error
    assert missing is not None
    raise missing


async def _trufflehog(context: ExtractionContext) -> Scan:
    kind = "git" if context.history_is_there else "filesystem"
    place = context.checkout.as_uri() if context.history_is_there else str(context.folder)
    argv = ["trufflehog", kind, place, "--json", "--no-update", "--no-verification"]
    result = await context.tool(argv)
    found = tools.read_trufflehog(result.stdout, context.checkout)
    result = replace(result, stdout="")  # it holds the secrets, and a reason is quoted from what was printed
    if result.out_of_memory or (not result.ok and not found):
        raise ToolFailed(result)
    return found, [] if result.ok else ["TruffleHog reported errors; the scan may be incomplete"]


async def _kingfisher(context: ExtractionContext) -> Scan:
    written = context.workspace / "kingfisher.json"
    argv = ["kingfisher", "scan", str(context.folder), "--format", "json", "--no-validate", "--no-update-check", "--redact"]
    result = await context.tool([*argv, "--quiet", "--output", str(written)])
    report = read_report(written, tools.Kingfisher)
    clean = result.exit_code == 0 and not written.exists()
    if result.out_of_memory or result.exit_code not in (0, tools.KINGFISHER_FOUND) or (report is None and not clean):
        raise ToolFailed(replace(result, stdout=""))
    return tools.read_kingfisher(report or tools.Kingfisher(), context.checkout), []


async def _detect_secrets(context: ExtractionContext) -> Scan:
    result = await context.tool(tools.detect_secrets_argv(context.folder))
    report = tools.parse_detect_secrets(result.stdout)
    if result.out_of_memory or not result.ok or report is None:
        if "No module named detect_secrets" in result.stderr:
            raise ToolMissing("detect-secrets is not installed", "detect-secrets")
        raise ToolFailed(replace(result, stdout=""))
    return tools.read_detect_secrets(report, context.folder, context.checkout), []
