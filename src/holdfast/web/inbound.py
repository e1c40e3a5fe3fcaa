"""Webhooks that come in: the built-in route, and `receive` for a route of one's own.

@app.post("/hooks/github")
async def github(request: Request) -> Response:
    return await receive(hf, "github", request)
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.web.problems import answers, problem_of
from holdfast.web.routing import HoldfastDep, reply

router = APIRouter(tags=["webhooks"])


class Received(BaseModel):
    job_id: str
    duplicate: bool = Field(description="It was here before, and this is its job.")


async def receive(hf: Holdfast, source: str, request: Request) -> Response:
    """For FastAPI and Starlette: the answer to this request, which is a good one only once its job is committed."""
    try:
        return await _received(hf, source, request)
    except HoldfastError as error:
        told = problem_of(error)
        if told is None:
            raise
        return told


async def _received(hf: Holdfast, source: str, request: Request) -> Response:
    found = await hf.inbound.receive(source, request.headers, await request.body())
    return reply({"job_id": found.job_id, "duplicate": found.duplicate}, 200 if found.duplicate else 202)


@router.post(
    "/webhooks/in/{source}",
    summary="A webhook of somebody else",
    status_code=202,
    response_model=Received,
    responses={**answers(401, 404, 409), 200: {"model": Received, "description": "It was here before."}},
    openapi_extra={"security": []},
)
async def take_webhook(source: str, request: Request, hf: HoldfastDep) -> Response:
    """Signed as the source was configured by `hf.inbound`; the same delivery again is answered with the same job."""
    return await _received(hf, source, request)
