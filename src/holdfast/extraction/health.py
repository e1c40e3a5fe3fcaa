"""How extractions are doing: their queue, and the advisories that this machine would match against."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from holdfast import Holdfast
from holdfast.extraction.advisories import status
from holdfast.extraction.context import Options


class Health(msgspec.Struct, kw_only=True):
    status: Literal["ok", "degraded"]
    warnings: list[str]
    waiting: int
    scheduled: int
    running: int
    stuck: int
    """Running past all limits, and not yet met by the reaper."""
    oldest_wait_seconds: float | None
    advisories: dict[str, Any] | None


async def health(hf: Holdfast, options: Options, queue: str, tenant: str | None) -> Health:
    found = (await hf.stats(tenant=tenant)).queues.get(queue)
    load = None if found is None else found.load
    warnings, advisories = await asyncio.to_thread(_advisories, options)
    if load is not None and load.stuck:
        warnings.append(f"{load.stuck} extractions are stuck; the reaper takes them up at its next pass.")
    if found is not None and found.orphaned:
        warnings.append(f"{found.orphaned} extractions wait, and no worker serves them.")
    return Health(
        status="degraded" if warnings else "ok",
        warnings=warnings,
        waiting=0 if load is None else load.waiting,
        scheduled=0 if load is None else load.scheduled,
        running=0 if load is None else load.running,
        stuck=0 if load is None else load.stuck,
        oldest_wait_seconds=None if load is None else load.oldest_wait_seconds,
        advisories=advisories,
    )


def _advisories(options: Options) -> tuple[list[str], dict[str, Any] | None]:
    """Without paths: they are not for callers."""
    if options.advisories is None:
        return [], None
    found = status(options.advisories)
    if not found.usable or found.advisories is None:
        return ["The advisory database cannot be used: vulnerabilities are not scanned."], None
    return list(found.warnings), {"version": found.advisories.version, "age_days": found.age_days}
