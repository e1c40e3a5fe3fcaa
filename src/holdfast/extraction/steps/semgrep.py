"""Static analysis by Semgrep, with rules of this machine. Its exit code hides what it did not scan: the report tells."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.manifests.source import shown
from holdfast.extraction.model import Finding
from holdfast.extraction.steps.reading import Ordinals, line_number, path_in, read_report
from holdfast.pipeline import Done, Failure, Partial, StepFailed, ToolFailed, says_out_of_memory

TITLE = "Static analysis"
MESSAGE = "Static analysis complete - {findings} findings"
OUT_OF_MEMORY = "Static analysis ran out of memory - scanning skipped"
RULE_SECONDS = 30
REASONS_MAX = 20
MESSAGE_CHARS_MAX = 1000
SNIPPET_BYTES_MAX = 1024 * 1024

FAILURES = [
    Failure(on="missing", message="Static analysis skipped (Semgrep not installed)"),
    Failure(on="memory", message=OUT_OF_MEMORY),
    Failure(on="timeout", message="Static analysis timed out"),
]

Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: dict[str, Severity] = {
    "CRITICAL": "critical",
    "ERROR": "high",
    "HIGH": "high",
    "WARNING": "medium",
    "MEDIUM": "medium",
    "INFO": "low",
    "LOW": "low",
}


class _Place(msgspec.Struct):
    line: int = 0


class _Extra(msgspec.Struct):
    message: str = ""
    severity: str = ""
    metadata: dict[str, Any] = {}


class _Result(msgspec.Struct):
    check_id: str
    path: str
    start: _Place
    end: _Place
    extra: _Extra


class _Error(msgspec.Struct):
    level: str = ""
    type: Any = ""
    message: str = ""
    long_msg: str = ""
    path: str | None = None

    @property
    def told(self) -> str:
        return self.message or self.long_msg


class _Paths(msgspec.Struct):
    scanned: list[str] = []


class Report(msgspec.Struct):
    results: list[_Result]
    errors: list[_Error] = []
    paths: _Paths = msgspec.field(default_factory=_Paths)


async def analyse(context: ExtractionContext) -> Done:
    rules = _rules_in(context.workspace, context.options.rules)
    written = context.workspace / "semgrep.json"
    # A relative path of the rules: Semgrep puts it before the name of each rule.
    argv = [context.options.semgrep, "scan", "--config", rules, "--metrics=off", "--disable-version-check", "--quiet"]
    argv += ["--jobs=1", f"--timeout={RULE_SECONDS}", *_memory(context), f"--json-output={written}", str(context.folder)]
    result = await context.tool(argv)
    if result.out_of_memory:
        raise ToolFailed(result)
    report = read_report(written, Report)
    if report is None:
        raise ToolFailed(result)
    check(report)
    context.findings = findings_of(report, context.checkout)
    count = len(context.findings)
    if context.keeper is not None:
        await context.keeper.save_scan("findings", context.findings, details={"unscanned": len(report.errors)})
    if report.errors:
        return Partial(MESSAGE, reasons_of(report, context.checkout), findings=count, unscanned=len(report.errors))
    return Done(MESSAGE, findings=count, unscanned=0)


def _rules_in(workspace: Path, rules: Path | None) -> str:
    if rules is None:
        (workspace / "rules.yml").write_text(resources.files("holdfast.extraction.rules").joinpath("default.yml").read_text())
    elif rules.is_dir():
        shutil.copytree(rules, workspace / "rules")
        return "rules"
    elif rules.is_file():
        shutil.copyfile(rules, workspace / "rules.yml")
    else:
        raise StepFailed(f"Static analysis failed: there are no rules at {rules}")
    return "rules.yml"


def _memory(context: ExtractionContext) -> list[str]:
    """Its own limit ends one file; ours would end the whole scan."""
    limit = context.step.memory_mb
    return [] if limit is None else [f"--max-memory={int(limit * 0.75)}"]


def check(report: Report) -> None:
    """Raise where nothing was scanned, however content the exit code looked."""
    fatal = [error for error in report.errors if error.level == "error"]
    unscanned = {error.path for error in report.errors}
    nothing_left = bool(report.errors) and not report.results and unscanned >= set(report.paths.scanned)
    if not fatal and not nothing_left:
        return
    told = fatal or report.errors
    if any(says_out_of_memory(f"{error.type} {error.told}") for error in told):
        raise StepFailed(OUT_OF_MEMORY, code="semgrep_out_of_memory")
    if fatal or not all(error.type == "Timeout" for error in told):
        raise StepFailed(f"Static analysis failed: {_first_line(told[0].told)}", code="semgrep_failed")
    raise StepFailed("Static analysis timed out", code="semgrep_timed_out")


def reasons_of(report: Report, checkout: Path) -> list[str]:
    told = [
        f"{path_in(checkout, error.path) if error.path else 'a file'}: {_kind(error)}" for error in report.errors[:REASONS_MAX]
    ]
    return [f"{len(report.errors)} pairs of file and rule were not scanned", *dict.fromkeys(told)]


def _kind(error: _Error) -> str:
    return shown(error.type) if isinstance(error.type, str) and error.type else _first_line(error.told)


def findings_of(report: Report, checkout: Path) -> list[Finding]:
    ordinals = Ordinals()
    files: dict[str, list[str]] = {}
    found = []
    for one in sorted(report.results, key=lambda one: (one.path, one.start.line, one.check_id)):
        path = path_in(checkout, one.path)
        if path not in files:
            files[path] = _lines(checkout / path)
        rule = shown(one.check_id.rpartition(".")[2])
        # Without a login Semgrep gives neither the lines nor a fingerprint.
        snippet = " ".join(" ".join(files[path][one.start.line - 1 : one.end.line]).split())
        found.append(
            Finding(
                rule=rule,
                path=path,
                line=line_number(one.start.line),
                end_line=line_number(one.end.line),
                severity=SEVERITIES.get(one.extra.severity.upper(), "info"),
                message=shown(one.extra.message)[:MESSAGE_CHARS_MAX],
                fingerprint=ordinals.fingerprint(rule, path, snippet),
                cwes=_cwes(one.extra.metadata.get("cwe")),
            )
        )
    return found


def _lines(path: Path) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(SNIPPET_BYTES_MAX).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _cwes(told: Any) -> list[str]:
    words = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    return [shown(str(word).partition(":")[0].strip()) for word in words]


def _first_line(text: str) -> str:
    """And the second, where the first one only announces it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    return shown(" ".join(lines[:2] if lines[0].endswith(":") else lines[:1])[:MESSAGE_CHARS_MAX])
