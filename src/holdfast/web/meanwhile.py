"""Stands in for `hf.follow` and `hf.events(tenant=…)`. To be removed once both are there: callers then use those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import NotFound
from holdfast.job import Event, LogLine

POLL_SECONDS = 0.2
PAGE = 500


async def follow(hf: Holdfast, job_id: str, *, run_no: int, after: int) -> AsyncIterator[LogLine]:
    """The lines of one run until its end; also of the run that a waiting job is going to have next."""
    while True:
        job = await hf.get(job_id)
        run = next((run for run in await hf.runs(job_id) if run.run_no == run_no), None)
        if run is None and (job.state.ended or run_no != job.run_no + 1):
            raise NotFound(f"Job {job_id} has no run {run_no}.")
        while run is not None and (lines := await hf.logs(run.run_id, after=after, limit=PAGE)):
            for line in lines:
                yield line
            after = lines[-1].no
        if run is not None and run.outcome != "running":
            return
        await asyncio.sleep(POLL_SECONDS)


async def events(hf: Holdfast, *, tenant: str | None, before: int | None, limit: int) -> list[Event]:
    """Newest first."""
    found = await hf.store.shared("event_page", tenant, before or 2**62, limit)
    return [Event(**{**row, "job_id": row["job_id"] and str(row["job_id"]), **_plain(row)}) for row in found]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    at = row["at"]
    return {
        "at": at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC),
        "data": msgspec.json.decode(row["data"] or "{}"),
    }
