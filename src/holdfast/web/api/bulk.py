"""Cancel or retry all jobs that match a filter: the count first, then with the count as confirmation."""

from __future__ import annotations

from starlette.responses import Response

from holdfast import bulk
from holdfast.app import Holdfast
from holdfast.bulk import BulkVerb
from holdfast.reading import job_filter
from holdfast.web import models
from holdfast.web.access import Act, Caller, require
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("jobs")


@router.post("/jobs/cancel", summary="Cancel all jobs that match", response_model=models.BulkResult, responses=answers(404))
async def cancel_many(body: models.BulkAct, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Without `confirm` equal to the count nothing is done, and the count is answered."""
    require(caller, Act.CANCEL)
    return await _act(hf, caller, BulkVerb.CANCEL, body)


@router.post("/jobs/retry", summary="Retry all jobs that match", response_model=models.BulkResult, responses=answers(404))
async def retry_many(body: models.BulkAct, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Without `confirm` equal to the count nothing is done, and the count is answered."""
    require(caller, Act.RETRY)
    return await _act(hf, caller, BulkVerb.RETRY, body)


async def _act(hf: Holdfast, caller: Caller, verb: BulkVerb, body: models.BulkAct) -> Response:
    where = job_filter({**body.where.model_dump(), "tenant": scope(caller, body.where.tenant)})
    return reply(await bulk.act(hf.store, verb, where, caller.actor, confirm=body.confirm))
