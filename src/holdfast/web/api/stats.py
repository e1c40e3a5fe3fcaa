"""/api/stats: how the queues are doing."""

from __future__ import annotations

from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.stats import stats_of
from holdfast.web.access import Act, require
from holdfast.web.paging import TenantQuery
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("stats")


class Load(BaseModel):
    queue: str
    waiting: int
    scheduled: int
    ordered: int = Field(description="Behind another job with the same ordering key.")
    running: int
    stuck: int = Field(description="Running without a valid lease, or past their deadline.")
    slow: int = Field(description="Running for longer than expected.")
    oldest_wait_seconds: float | None


class Percentiles(BaseModel):
    """Seconds."""

    p50: float
    p90: float
    p99: float


class QueueStats(BaseModel):
    load: Load
    orphaned: int = Field(description="Waiting for a minute or more and known to no live worker.")
    finished_per_minute_5m: float | None
    finished_per_minute_60m: float | None
    wait: Percentiles | None
    run: Percentiles | None


class Stats(BaseModel):
    counts: dict[str, int] = Field(description="By state, each counted to `count_cap` at the most.")
    count_cap: int
    stuck: int
    slow: int
    orphaned: int
    oldest_wait_seconds: float | None
    queues: dict[str, QueueStats]


@router.get("/stats", summary="Counts, waits and throughput", response_model=Stats, responses=answers(404))
async def get_stats(caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """Of the caller's own jobs; throughput and percentiles are for the service role, across all tenants."""
    require(caller, Act.READ_QUEUES)
    return reply(await stats_of(hf.store, hf.settings, scope(caller, tenant)))
