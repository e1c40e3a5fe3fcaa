"""POST /api/jobs: enqueue. The one route that is called thousands of times a second, and written for that."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from holdfast.store.protocol import Transaction
from holdfast.web.access import Act, require, task_to_enqueue
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import AcceptedJob, NewJob
from holdfast.web.problems import answers
from holdfast.web.routing import (
    caller_of,
    guarded_router,
    link,
    once_by_itself,
    read_body,
    reads_by_itself,
    reply,
    scope,
    takes,
    web_of,
)

router = guarded_router("jobs")

_ANSWERED = tuple(AcceptedJob.model_fields)


@router.post(
    "/jobs",
    summary="Enqueue a job",
    status_code=202,
    response_model=AcceptedJob,
    responses={**answers(404, 409), 202: {"headers": {"Location": {"schema": {"type": "string"}}}}},
    openapi_extra=takes(NewJob),
)
@once_by_itself
@reads_by_itself
async def enqueue(request: Request) -> Response:
    """Only tasks that say `expose=` can be enqueued by a tenant; the service role may enqueue any, for anybody."""
    hf, caller = web_of(request).hf, caller_of(request)
    body = await read_body(request, NewJob)
    task = task_to_enqueue(caller, hf.tasks, body.task)
    if body.queue is not None:
        require(caller, Act.OPERATE)
    options = {name: getattr(body, name) for name in body.model_fields_set - {"task", "args", "tenant"}}

    async def work(tx: Transaction | None) -> Response:
        job = await hf.enqueue(
            task.name, body.args, **options, tenant=scope(caller, body.tenant), enqueued_by=caller.actor, tx=tx
        )
        accepted = {name: getattr(job, name) for name in _ANSWERED}
        return reply(accepted, 202, {"Location": link(request, f"/jobs/{job.id}")})

    return await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor)
