"""Dependency sync: the project's dependencies in the database are those of this run, all at once."""

from __future__ import annotations

from holdfast.extraction.context import ExtractionContext
from holdfast.pipeline import Done


async def sync_dependencies(context: ExtractionContext) -> Done:
    if context.keeper is not None:
        await context.keeper.save_dependencies(context.inventory)
    told: dict[str, bool | None] = {}
    for one in context.inventory.components:
        told[one.purl] = told.get(one.purl) or one.direct
    direct, unknown = sum(one is True for one in told.values()), sum(one is None for one in told.values())
    message = "Dependencies synced ({direct} direct, {transitive} transitive)"
    if unknown:
        message = "Dependencies synced ({direct} direct, {transitive} transitive, {unknown} unknown)"
    return Done(message, direct=direct, transitive=len(told) - direct - unknown, unknown=unknown)
