"""/api/jobs: list, look, cancel, retry, and why one waits."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.job import State
from holdfast.web import models
from holdfast.web.access import Act, require, visible_event, visible_job, visible_run, visible_why
from holdfast.web.paging import LIMIT_DEFAULT, CursorQuery, FilterDep, LimitQuery
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("jobs")


@router.get("/jobs", summary="List jobs, newest first", response_model=models.JobPage, responses=answers(404))
async def list_jobs(
    where: FilterDep, caller: CallerDep, hf: HoldfastDep, cursor: CursorQuery = None, limit: LimitQuery = LIMIT_DEFAULT
) -> Response:
    require(caller, Act.READ_JOBS)
    wanted = {**where, "tenant": scope(caller, where["tenant"])}
    jobs = await hf.jobs(cursor=cursor, limit=limit, **wanted)
    next_cursor = jobs[-1].id if len(jobs) == limit else None
    return reply({"items": [visible_job(caller, job) for job in jobs], "next_cursor": next_cursor})


@router.get(
    "/jobs/{job_id}", summary="A job with its result and runs", response_model=models.JobWithRuns, responses=answers(404)
)
async def get_job(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_JOBS)
    job = await hf.get(job_id, tenant=caller.tenant)
    runs = await hf.runs(job_id, tenant=caller.tenant)
    return reply({**visible_job(caller, job), "runs": [visible_run(caller, run) for run in runs]})


@router.delete(
    "/jobs/{job_id}",
    summary="Cancel a job",
    status_code=204,
    response_class=Response,
    responses={**answers(404, 409), 202: {"model": models.Job, "description": "It runs, and was asked to stop."}},
)
async def delete_job(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.CANCEL)
    job = await hf.cancel(job_id, by=caller.actor, tenant=caller.tenant)
    return Response(status_code=204) if job.state is State.CANCELLED else reply(visible_job(caller, job), 202)


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Cancel a job",
    response_model=models.Job,
    responses={**answers(404, 409), 202: {"model": models.Job, "description": "It runs, and was asked to stop."}},
)
async def cancel_job(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.CANCEL)
    job = await hf.cancel(job_id, by=caller.actor, tenant=caller.tenant)
    return reply(visible_job(caller, job), 200 if job.state is State.CANCELLED else 202)


@router.post(
    "/jobs/{job_id}/retry",
    summary="Queue a failed or cancelled job again",
    status_code=202,
    response_model=models.Job,
    responses=answers(404, 409),
)
async def retry_job(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.RETRY)
    job = await hf.retry(job_id, by=caller.actor, tenant=caller.tenant)
    return reply(visible_job(caller, job), 202)


@router.get("/jobs/{job_id}/why", summary="Why a job waits", response_model=models.Why, responses=answers(404))
async def why_job(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_JOBS)
    await hf.get(job_id, tenant=caller.tenant)
    return reply(visible_why(caller, await hf.why(job_id)))


@router.get("/jobs/{job_id}/runs", summary="The runs of a job", response_model=models.RunList, responses=answers(404))
async def list_runs(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_JOBS)
    runs = await hf.runs(job_id, tenant=caller.tenant)
    return reply({"items": [visible_run(caller, run) for run in runs]})


@router.get("/jobs/{job_id}/events", summary="What happened to a job", response_model=models.EventList, responses=answers(404))
async def list_job_events(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_JOBS)
    await hf.get(job_id, tenant=caller.tenant)
    return reply({"items": [visible_event(caller, event) for event in await hf.events(job_id)]})
