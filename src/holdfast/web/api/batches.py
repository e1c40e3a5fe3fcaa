"""/api/batches: jobs that belong together, and how far they are."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.web.access import Act, require
from holdfast.web.api.asked import CursorQuery, LimitQuery, TenantQuery
from holdfast.web.models import Cursor
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("batches")


class BatchRow(BaseModel):
    id: str
    tenant: str | None
    total: int
    then_id: str | None = Field(description="The job that is made when all have ended; until then there is no such job.")
    created_at: datetime
    created_by: str | None
    ended_at: datetime | None


class Batch(BatchRow):
    counts: dict[str, int] = Field(description="How many are in which state, counted over 100,000 jobs at the most.")
    progress: float = Field(description="The share of jobs that have ended, whatever their end.")


class BatchPage(BaseModel):
    items: list[BatchRow]
    next_cursor: Cursor


@router.get("/batches", summary="List batches, newest first", response_model=BatchPage, responses=answers(404))
async def list_batches(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.READ_JOBS)
    found = await hf.batches.list(tenant=scope(caller, tenant), cursor=cursor, limit=limit)
    rows = [{name: shown for name, shown in one.as_dict().items() if name not in ("counts", "progress")} for one in found]
    return reply({"items": rows, "next_cursor": found[-1].id if len(found) == limit else None})


@router.get("/batches/{batch_id}", summary="A batch and how far it is", response_model=Batch, responses=answers(404))
async def get_batch(batch_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Its jobs: `GET /api/jobs?batch=…`."""
    require(caller, Act.READ_JOBS)
    return reply((await hf.batches.get(batch_id, tenant=caller.tenant)).as_dict())
