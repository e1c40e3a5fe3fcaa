"""What goes wrong, as a caller of the API reads it: problem+json with a stable `code`. The one table from errors to status."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from holdfast import errors
from holdfast.redact import redact

log = logging.getLogger("holdfast.web")

MEDIA_TYPE = "application/problem+json"
SHOWN_ERRORS_MAX = 5
STATUSES: dict[type[Exception], int] = {
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.JobNotFound: 404,
    errors.RunNotFound: 404,
    errors.NotFound: 404,
    errors.JobConflict: 409,
    errors.Conflict: 409,
    errors.DuplicateJob: 409,
    errors.BudgetExhausted: 402,
    errors.PayloadTooLarge: 413,
    errors.QueueFull: 429,
    errors.RateLimited: 429,
    errors.TooManyStreams: 429,
    errors.IdempotencyKeyInvalid: 400,
    errors.IdempotencyKeyReused: 422,
    errors.IdempotencyInProgress: 409,
    errors.InvalidJob: 422,
    errors.StorageUnavailable: 502,
    errors.MachinesUnavailable: 502,
    errors.BreakerOpen: 503,
    errors.SignerUnavailable: 503,
    errors.NotMigrated: 503,
    errors.SchemaTooNew: 503,
    errors.NotOurDatabase: 503,
}
"""The nearest class counts. What is not here is our own fault: 500, and the caller is told nothing of it."""

_FRAMEWORK_CODES = {400: "body_unreadable", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
_FRAMEWORK_DETAILS = {
    400: "The body cannot be read as JSON.",
    404: "There is nothing at this address.",
    405: "This address does not take this method; the header Allow names those it takes.",
}

_HIDDEN = {
    "storage_unavailable": "The database cannot be reached, and nothing was written; try again later.",
    "machines_unavailable": "The provider of machines did not do it; whoever runs this server finds the reason in its log.",
    "breaker_open": "A service that this needs has failed too often; try again later.",
    "signer_unavailable": "Tokens cannot be checked right now; try again later, or use an API key.",
}
"""Where the database is, and what it said, is not for callers."""


class Problem(BaseModel):
    """An error, as RFC 9457 says. Programs look at `code`, people read `detail`."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": True})

    type: str = Field(examples=["urn:holdfast:problem:job_not_found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no job 01890000-0000-7000-8000-000000000000."])
    code: str = Field(examples=["job_not_found"])


def problem(status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """`more` are further fields, such as the id of the job that stands in the way."""
    body = {
        "type": f"urn:holdfast:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        # Half a surrogate pair, quoted from what was sent, is no UTF-8.
        "detail": redact(detail).encode(errors="replace").decode(),
        "code": code,
        **more,
    }
    return Response(msgspec.json.encode(body), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problem_of(error: errors.HoldfastError) -> Response | None:
    """None: nothing that a caller may be told of."""
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    if status is None:
        return None
    headers: dict[str, str] = {}
    more: dict[str, Any] = {}
    detail = str(error)
    if status >= 500:
        log.warning("%s: %s", error.code, error)
        detail = _HIDDEN.get(
            error.code, "The database cannot be used as it is; whoever runs this server finds the reason in its log."
        )
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    job_id = getattr(error, "job_id", None)  # of DuplicateJob, and of what applications on top raise
    if job_id is not None:
        more["job_id"] = job_id
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    headers.update(getattr(error, "headers", None) or {})
    return problem(status, error.code, detail, headers=headers, **more)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: these statuses are problems. Those that any route can answer are added by the server."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses
    }


ANY_ROUTE = answers(400, 413, 422, 429, 500, 502, 503)
GUARDED_ROUTE = answers(401, 403)


def handle_errors(app: FastAPI) -> None:
    """Every error that leaves a route becomes a problem; those that are our own fault leave through the gate."""

    @app.exception_handler(errors.HoldfastError)
    async def ours(request: Request, error: errors.HoldfastError) -> Response:
        answer = problem_of(error)
        if answer is None:
            raise error
        return answer

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        code = _FRAMEWORK_CODES.get(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "_"))
        detail = _FRAMEWORK_DETAILS.get(error.status_code, str(error.detail))
        return problem(error.status_code, code, detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = error.errors()
        if any(one["type"] == "json_invalid" for one in found):
            return problem(400, "json_invalid", f"The body is not JSON: {found[0].get('ctx', {}).get('error', 'unreadable')}.")
        wrong = [{"where": _place(one["loc"]), "message": str(one["msg"])} for one in found[:SHOWN_ERRORS_MAX]]
        detail = "; ".join(f"{one['where']}: {one['message']}" for one in wrong)
        return problem(422, "request_invalid", detail, errors=wrong)


def _place(loc: tuple[Any, ...]) -> str:
    return ".".join(str(part)[:50] for part in loc).encode(errors="replace").decode()
