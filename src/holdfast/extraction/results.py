"""What the newest extraction of a project found, what it did not look for, and how that differs from the run before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast import Holdfast
from holdfast.extraction.kinds import KINDS, Kind
from holdfast.extraction.model import Component, Finding, Inventory, Report, Secret, Vulnerability
from holdfast.extraction.report import sarif
from holdfast.extraction.repositories import Repository, looked_at
from holdfast.extraction.sbom import write_sbom
from holdfast.extraction.sql import Statements

NUMBER_MAX = 2**31 - 1


class Difference(msgspec.Struct, kw_only=True):
    """To the last run before that looked for the same kind."""

    to_run: int
    added: list[str]
    gone: list[str]
    unchanged: int


class Scan(msgspec.Struct, kw_only=True):
    """One kind of result: looked for, with what was found, or not, with the reason."""

    scanned: bool
    reason: str | None
    count: int | None
    run: int
    job_id: str
    saved_at: datetime
    details: dict[str, Any]
    difference: Difference | None = None
    """None: there is nothing to compare with."""


class Results(msgspec.Struct, kw_only=True):
    """A list that is None was not scanned, which is not the same as nothing found."""

    repository: Repository
    scans: dict[str, Scan] = {}
    """By kind; a kind that is missing was never reached by any run."""
    dependencies: list[Component] | None = None
    vulnerabilities: list[Vulnerability] | None = None
    findings: list[Finding] | None = None
    secrets: list[Secret] | None = None
    reports: list[Report] | None = None
    enrichment: dict[str, dict[str, Any] | None] = {}
    """Package URL -> what its registry knows; None: pending."""

    @property
    def pending_enrichment(self) -> int:
        return sum(known is None for known in self.enrichment.values())

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {**plain, "pending_enrichment": self.pending_enrichment}

    def as_sarif(self) -> dict[str, Any]:
        return sarif(self.dependencies or [], self.vulnerabilities or [], self.findings, self.secrets)

    def as_sbom(self) -> bytes:
        return write_sbom(Inventory(components=self.dependencies or []), name=self.repository.full_name)


class RunRow(msgspec.Struct, kw_only=True):
    """One extraction, as it is kept after its job is forgotten."""

    number: int
    job_id: str
    outcomes: dict[str, Any]
    """How each step ended, by name."""
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


async def read_results(hf: Holdfast, repository: Repository) -> Results:
    async with hf.transaction() as tx:
        ask = Statements(hf, tx)
        await looked_at(ask, repository.tenant, repository.project)
        results = Results(repository=repository)
        for row in await ask("scan_newest", repository.id):
            kind = KINDS[row["kind"]]
            results.scans[kind.name] = scan = await read_scan(ask, repository.id, kind, row)
            if scan.scanned:
                found = await ask(f"{kind.name}_list", repository.id)
                setattr(results, kind.name, [kind.loaded(one) for one in found])
                if kind.name == "dependencies":
                    results.enrichment = {one["purl"]: _decoded(one["enrichment"]) for one in found}
    return results


async def read_scan(ask: Statements, repository_id: str, kind: Kind, row: dict[str, Any]) -> Scan:
    difference = None
    if row["scanned"] and row["seen"] is not None:
        before = await ask("scan_seen_before", repository_id, kind.name, row["number"])
        if before:
            difference = _difference(before[0]["number"], _decoded(before[0]["seen"]), _decoded(row["seen"]))
    return Scan(
        scanned=bool(row["scanned"]),
        reason=row["reason"],
        count=row["count"],
        run=row["number"],
        job_id=row["job_id"],
        saved_at=row["saved_at"],
        details=_decoded(row["details"]),
        difference=difference,
    )


def _difference(to_run: int, before: dict[str, str], now: dict[str, str]) -> Difference:
    return Difference(
        to_run=to_run,
        added=sorted(now[one] for one in now.keys() - before.keys()),
        gone=sorted(before[one] for one in before.keys() - now.keys()),
        unchanged=len(now.keys() & before.keys()),
    )


async def read_runs(hf: Holdfast, repository: Repository, before: int | None, limit: int) -> Sequence[RunRow]:
    async with hf.transaction() as tx:
        rows = await Statements(hf, tx)("run_list", repository.id, NUMBER_MAX if before is None else before, limit)
    return [msgspec.convert({**row, "outcomes": _decoded(row["outcomes"])}, RunRow) for row in rows]


def _decoded(value: str | None) -> Any:
    return None if value is None else msgspec.json.decode(value)
