"""/api/queues and /api/workers: what all tenants share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from holdfast.web import models
from holdfast.web.access import Act, may, require
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply

router = guarded_router("queues")

QueueName = Annotated[str, Path(min_length=1, max_length=200)]


@router.get("/queues", summary="Queues that were set, or that have work", response_model=models.QueueList)
async def list_queues(caller: CallerDep, hf: HoldfastDep) -> Response:
    """The numbers are those of the caller's own jobs."""
    require(caller, Act.READ_QUEUES)
    known = {queue.name: queue for queue in await hf.queues.list()}
    loads = {load.queue: load for load in await hf.store.queue_stats(tenant=caller.tenant)}
    shared = may(caller, Act.OPERATE)
    items = []
    for name in sorted(known.keys() | loads.keys()):
        queue, load = known.get(name), loads.get(name)
        items.append(
            {
                "name": name,
                "limit": queue.limit if queue else None,
                "paused_at": queue.paused_at if queue else None,
                "paused_by": queue.paused_by if queue and shared else None,
                "waiting": load.waiting if load else 0,
                "scheduled": load.scheduled if load else 0,
                "running": load.running if load else 0,
                "oldest_wait_seconds": load.oldest_wait_seconds if load else None,
            }
        )
    return reply({"items": items})


@router.post("/queues/{name}/pause", summary="Pause a queue", response_model=models.Queue)
async def pause_queue(name: QueueName, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Nothing of it is started any more; what runs goes on. For the service role: tenants share queues."""
    require(caller, Act.OPERATE)
    return reply(await hf.queues.pause(name, by=caller.actor))


@router.post("/queues/{name}/resume", summary="Resume a queue", response_model=models.Queue)
async def resume_queue(name: QueueName, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.OPERATE)
    return reply(await hf.queues.resume(name, by=caller.actor))


@router.get("/workers", summary="Workers", response_model=models.WorkerList)
async def list_workers(caller: CallerDep, hf: HoldfastDep) -> Response:
    """For the service role: workers serve all tenants."""
    require(caller, Act.OPERATE)
    return reply({"items": await hf.workers()})
