"""The follow-up of an extraction: what registries know of its dependencies. A job of its own, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import Abort, Holdfast, current
from holdfast.extraction.sql import Statements

AT_ONCE = 100

Registry = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Package URLs -> what their registries know of them; a package that is left out stays pending."""


class StillPending(Exception):
    """Some packages were not answered for; the job tries again, and after that the next extraction."""

    code = "enrichment_pending"


async def enrich(hf: Holdfast, registry: Registry | None, repository_id: str) -> None:
    """All that is pending; what is answered is kept at once, whatever becomes of the rest."""
    if registry is None:
        raise Abort("This worker has no registry to ask; give Extraction one", code="registry_missing")
    async with hf.transaction() as tx:
        pending = [row["purl"] for row in await Statements(hf, tx)("dependencies_pending", repository_id)]
    left = 0
    for start in range(0, len(pending), AT_ONCE):
        current().check_cancelled()
        asked = pending[start : start + AT_ONCE]
        found = await registry(asked)
        known = {purl: dict(found[purl]) for purl in asked if purl in found}
        left += len(asked) - len(known)
        async with hf.transaction() as tx:
            await Statements(hf, tx)("dependencies_enrich", repository_id, msgspec.json.encode(known).decode())
        current().progress(min(1.0, (start + AT_ONCE) / len(pending)))
    if left:
        raise StillPending(f"{left} of {len(pending)} dependencies are still pending enrichment")
    current().log.success(f"{len(pending)} dependencies enriched", step="enrichment")
