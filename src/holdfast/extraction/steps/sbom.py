"""SBOM: by cdxgen where it is installed, locked down so that it runs nothing of the repository; else by our own readers."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast import current
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.manifests import ManifestProblem, read_tree
from holdfast.extraction.model import Inventory
from holdfast.extraction.sbom import SBOM_BYTES_MAX, read_sbom, write_sbom
from holdfast.pipeline import Done, Failure, Partial, StepFailed, ToolMissing, ToolResult, reason_line

REPORT = "sbom.cdx.json"
REASONS_MAX = 20

FAILURES = [
    Failure(
        on="timeout", message="SBOM generation timed out - the repository may be too large or complex", code="sbom_timed_out"
    ),
]


async def generate_sbom(context: ExtractionContext) -> Done:
    try:
        own = await asyncio.to_thread(read_tree, context.checkout, context.project.path)
    except ManifestProblem as problem:
        raise _no_manifest(context) from problem
    if not own.manifests:
        raise _no_manifest(context)
    inventory, reasons = await _by_cdxgen(context, own)
    if not inventory.components:
        raise StepFailed(
            "No dependencies found - the package manifest may be empty or in an unsupported format", code="sbom_empty"
        )
    context.inventory = inventory
    context.reports[REPORT] = write_sbom(inventory, name=context.project.shown_name, version=context.commit or "")
    count = len({one.purl for one in inventory.components})
    reasons += [f"{one.manifest}: {one.message}" for one in inventory.problems]
    if reasons:
        return Partial("SBOM generated - found {dependencies} dependencies", reasons[:REASONS_MAX], dependencies=count)
    return Done("SBOM generated - found {dependencies} dependencies", dependencies=count)


def _no_manifest(context: ExtractionContext) -> StepFailed:
    path = context.values["path"]
    return StepFailed(f"No package manifest found at '{path}' - check your project's package path setting", code="no_manifest")


async def _by_cdxgen(context: ExtractionContext, own: Inventory) -> tuple[Inventory, list[str]]:
    """What cdxgen says, completed by our own reading; our own reading alone where cdxgen is missing or broke down."""
    report = context.workspace / "cdxgen.json"
    # Without the list of commands it starts the repository's own build tool, whatever else it is told.
    env = {"CDXGEN_ALLOWED_COMMANDS": "git", "CDXGEN_TELEMETRY": "false"}
    argv = ["cdxgen", "-r", "--no-install-deps", "--no-babel", "--spec-version", "1.6", "-o", str(report), str(context.folder)]
    try:
        result = await context.tool(argv, env=env)
    except ToolMissing:
        current().log.info("cdxgen is not installed: manifests are read by the built-in readers", step=context.step.name)
        return own, _not_read(own)
    context.cdxgen_ran = True
    try:
        read = read_sbom(_content(context, result), checkout=context.checkout, inventory=own)
    except ManifestProblem:
        why = "ran out of memory" if result.out_of_memory else f"failed: {reason_line(result)}"
        return own, [f"cdxgen {why}; manifests were read by the built-in readers", *_not_read(own)]
    seen = {one.manifest for one in read.components}
    missed = [one for one in own.components if one.manifest not in seen]
    components = sorted([*read.components, *missed], key=lambda one: (one.manifest, one.purl))
    return msgspec.structs.replace(read, components=components), _incomplete(result)


def _content(context: ExtractionContext, result: ToolResult) -> bytes:
    """Its exit code says nothing; what it wrote does."""
    try:
        with open(context.workspace / "cdxgen.json", "rb") as file:
            return file.read(SBOM_BYTES_MAX + 1)
    except OSError as error:
        raise ManifestProblem("sbom", "was not written.") from error


def _incomplete(result: ToolResult) -> list[str]:
    lines = [*result.stderr.splitlines(), *result.stdout.splitlines()]
    return [line.strip() for line in lines if "incomplete" in line.lower() or "unable to parse" in line.lower()]


def _not_read(own: Inventory) -> list[str]:
    return [f"{one.path}: this kind of manifest is read by cdxgen only" for one in own.manifests if not one.read]
