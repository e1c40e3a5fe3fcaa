"""/api/jobs/{id}/runs/{run_no}/logs: a page, all of it as a file, or live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from holdfast.app import Holdfast
from holdfast.errors import RunNotFound
from holdfast.job import Job, LogLine, Run
from holdfast.reading import NAME_CHARS_MAX, SEARCH_CHARS_MAX
from holdfast.web import models
from holdfast.web.access import Act, Caller, require
from holdfast.web.paging import NUMBER_MAX
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply
from holdfast.web.stream import DOCUMENTED, event, stream

router = guarded_router("logs")

PAGE_DEFAULT = 200
PAGE_MAX = 1000
RunNo = Annotated[int, Path(ge=1, le=NUMBER_MAX)]
AfterQuery = Annotated[int, Query(ge=0, le=NUMBER_MAX, description="Lines after this number.")]


class LogLevel(StrEnum):
    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    JSON = "json"
    NDJSON = "ndjson"
    TEXT = "text"


FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page; with `format=ndjson` or `format=text` all lines after the number, as a file.",
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}


@router.get(
    "/jobs/{job_id}/runs/{run_no}/logs",
    summary="The log of a run",
    response_model=models.LogPage,
    responses={**answers(404), **FORMATS},
)
async def read_log(
    job_id: str,
    run_no: RunNo,
    caller: CallerDep,
    hf: HoldfastDep,
    after: AfterQuery = 0,
    before: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="Lines before this number.")] = None,
    level: Annotated[list[LogLevel] | None, Query(description="Only of these levels.")] = None,
    step: Annotated[str | None, Query(min_length=1, max_length=NAME_CHARS_MAX)] = None,
    search: Annotated[str | None, Query(min_length=1, max_length=SEARCH_CHARS_MAX, description="Plain text, any case.")] = None,
    newest: Annotated[bool, Query(description="The last lines that match, instead of the first.")] = False,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT,
    format: LogFormat = LogFormat.JSON,
) -> Response:
    require(caller, Act.READ_JOBS)
    run = await _run(hf, caller, job_id, run_no)
    where: dict[str, Any] = {"before": before, "levels": level or (), "step": step, "search": search}
    if format is LogFormat.JSON:
        lines = await hf.logs(run.run_id, after=after, newest=newest, limit=limit, **where)
        more = lines[-1].no if len(lines) == limit and not newest else None
        return reply({"items": [_shown(line) for line in lines], "next_after": more})
    ndjson = format is LogFormat.NDJSON
    name = f"{job_id}-{run_no}.{'ndjson' if ndjson else 'txt'}"
    return StreamingResponse(
        _file(hf, run.run_id, after, where, _as_json if ndjson else _as_text),
        media_type="application/x-ndjson" if ndjson else "text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get(
    "/jobs/{job_id}/runs/{run_no}/logs/stream",
    summary="The log of a run as it is written",
    response_class=Response,
    responses={**answers(404), **DOCUMENTED},
)
async def stream_log(
    request: Request,
    job_id: str,
    run_no: RunNo,
    caller: CallerDep,
    hf: HoldfastDep,
    after: AfterQuery = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=NUMBER_MAX, description="Stronger than `after`.")] = None,
) -> Response:
    """Also for the run that a waiting job is going to have next."""
    require(caller, Act.READ_JOBS)
    job = await hf.get(job_id, tenant=caller.tenant)
    if not _comes_next(job, run_no):
        await _run(hf, caller, job_id, run_no)
    start = after if last_event_id is None else last_event_id
    return stream(request, caller, _events(hf, job_id, run_no, start))


async def _run(hf: Holdfast, caller: Caller, job_id: str, run_no: int) -> Run:
    for run in await hf.runs(job_id, tenant=caller.tenant):
        if run.run_no == run_no:
            return run
    raise RunNotFound(f"Job {job_id} has no run {run_no}.")


def _comes_next(job: Job[Any], run_no: int) -> bool:
    return not job.state.ended and run_no == job.run_no + 1


async def _events(hf: Holdfast, job_id: str, run_no: int, after: int) -> AsyncIterator[bytes]:
    async with aclosing(hf.follow(job_id, run_no=run_no, after=after)) as lines:
        async for line in lines:
            yield event(_shown(line), id=line.no)


async def _file(hf: Holdfast, run_id: str, after: int, where: dict[str, Any], form: Any) -> AsyncIterator[bytes]:
    while lines := await hf.logs(run_id, after=after, limit=PAGE_MAX, **where):
        yield b"".join(form(line) for line in lines)
        after = lines[-1].no


def _shown(line: LogLine) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(line)
    del shown["run_id"]
    return shown


def _as_json(line: LogLine) -> bytes:
    return msgspec.json.encode(_shown(line)) + b"\n"


def _as_text(line: LogLine) -> bytes:
    """One line each, whatever a message contains: control characters would speak to the reader's terminal."""
    at = line.created_at.isoformat(timespec="milliseconds") if line.created_at else "-"
    step = f" [{line.step}]" if line.step else ""
    said = f"{line.no} {at} {line.level}{step} {line.message}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in said).encode(errors="replace") + b"\n"
