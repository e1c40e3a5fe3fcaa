"""What a run found goes into the database: each kind in one transaction, so that a reader sees the old or the new, and a
second try over whatever an earlier one left ends with exactly the right rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import Holdfast, current
from holdfast.errors import LeaseLost, StorageUnavailable
from holdfast.extraction.kinds import KINDS, Kind, KindName, Row
from holdfast.extraction.model import Inventory
from holdfast.extraction.sql import Statements
from holdfast.pipeline import StepFailed

PAUSES: tuple[float, ...] = (1.0, 3.0)
"""Seconds between the tries: one more try than pauses."""


class ProjectKeeper:
    """Where the steps of one attempt put what they find."""

    def __init__(self, hf: Holdfast, project_id: str, run_id: str) -> None:
        self._to = (hf, project_id, run_id)

    async def save_dependencies(self, inventory: Inventory) -> None:
        await save_dependencies(*self._to, inventory)

    async def save_scan(
        self, kind: KindName, rows: Sequence[Any] | None, *, reason: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        typed = None if rows is None else [msgspec.convert(row, KINDS[kind].type, from_attributes=True) for row in rows]
        await save_scan(*self._to, kind, typed, reason=reason, details=details)

    async def load(self, kind: KindName) -> tuple[list[Any], dict[str, Any]] | None:
        hf, project_id, run_id = self._to
        async with hf.transaction() as tx:
            ask = Statements(hf, tx)
            held = await ask("repository_hold", project_id, run_id)
            found = await ask("scan_of_job", held[0]["job_id"], kind) if held else []
            if not found or not found[0]["scanned"]:
                return None
            rows = [KINDS[kind].loaded(row) for row in await ask(f"{kind}_list", project_id)]
            return rows, msgspec.json.decode(found[0]["details"])


async def save_dependencies(hf: Holdfast, project_id: str, run_id: str, inventory: Inventory) -> None:
    details = {
        "without_lockfile": inventory.without_lockfile,
        "problems": msgspec.to_builtins(inventory.problems),
        "manifests": msgspec.to_builtins(inventory.manifests),
    }
    await save_scan(hf, project_id, run_id, "dependencies", inventory.components, details=details)


async def save_scan(
    hf: Holdfast,
    project_id: str,
    run_id: str,
    kind: KindName,
    rows: Sequence[Row] | None,
    *,
    reason: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """These rows and no others. None: not scanned, for this reason; then none are left, because nobody knows.

    `details` is what must be told beside the number found, such as the age of the advisories. Only the attempt that
    began last may write; any other raises LeaseLost.
    """

    async def once() -> None:
        async with hf.transaction() as tx:
            ask = Statements(hf, tx)
            held = await ask("repository_hold", project_id, run_id)
            if not held:
                raise LeaseLost(f"run {run_id} may no longer write the results of {project_id}; a newer one has begun")
            await replace(ask, project_id, held[0]["job_id"], KINDS[kind], rows, reason, details)

    await _tried(once)


async def replace(
    ask: Statements,
    project_id: str,
    job_id: str,
    kind: Kind,
    rows: Sequence[Row] | None,
    reason: str | None,
    details: Mapping[str, Any] | None,
) -> None:
    """The same inside a transaction of the caller's, who holds the project's row."""
    stored = kind.stored(rows or ())
    if stored:
        await ask(f"{kind.name}_save", project_id, _json(stored))
    await ask(f"{kind.name}_forget", project_id, _json([row["key"] for row in stored]))
    scanned = rows is not None
    outcome = (None, len(stored), _json(kind.seen(rows))) if rows is not None else (reason or "Not scanned", None, None)
    await ask("scan_save", job_id, kind.name, project_id, scanned, *outcome, _json(msgspec.to_builtins(dict(details or {}))))
    await ask("scan_forget_older", project_id, kind.name)


async def _tried(work: Callable[[], Awaitable[None]]) -> None:
    for pause in (*PAUSES, None):
        try:
            await work()
            return
        except StorageUnavailable as error:
            if pause is None:
                raise StepFailed("Database connection error during sync", code="database_unavailable") from error
            current().log.warning("Database connection error during sync - will retry", reason=str(error))
            await asyncio.sleep(pause)


def _json(value: Any) -> str:
    """PostgreSQL takes neither zero characters nor halves of pairs, and a tool may have met both in a file."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return _json(_plain(value))
    return _json(_plain(value)) if "\\u0000" in text and _plain(value) != value else text


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
