"""The recovery pass for an outside cron: behind a key of its own, or signed by QStash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from typing import Annotated, Any
from urllib.parse import urlsplit

import jwt
from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, Field

from holdfast.errors import Unauthenticated
from holdfast.processes.reaper import Reaper
from holdfast.settings import Settings
from holdfast.web.problems import answers
from holdfast.web.routing import HoldfastDep, throttled, web_of

log = logging.getLogger("holdfast")

LEEWAY_SECONDS = 5
router = APIRouter(tags=["internal"])


class Recovered(BaseModel):
    requeued: int = Field(description="Jobs whose worker died or hung, and that are tried again.")
    failed: int = Field(description="Those that had no attempts left.")
    orphaned_jobs_found: int = Field(description="Jobs that wait for a worker that is not there.")
    machines_started: int


@router.post("/internal/recovery", response_model=Recovered, responses=answers(401), openapi_extra={"security": []})
@router.post(
    "/internal/recovery/extraction-jobs", response_model=Recovered, responses=answers(401), openapi_extra={"security": []}
)
async def recover(
    request: Request,
    hf: HoldfastDep,
    x_internal_api_key: Annotated[str | None, Header(description="The setting internal_api_key.")] = None,
    upstash_signature: Annotated[str | None, Header(description="Made by QStash with its signing key.")] = None,
) -> Recovered:
    """One pass of the reaper. Any number of calls at once is harmless: each job is handled once."""
    await throttled(
        web_of(request),
        request,
        lambda: _require_key_or_signature(request, hf.settings, x_internal_api_key, upstash_signature),
        f"{x_internal_api_key}\0{upstash_signature}",
    )
    report, _pruned = await Reaper(hf.store, hf.settings, start_machines=hf.machines.recover).one_pass()
    if not report:  # else the pass itself has said so
        log.info("[RECOVERY] Requeued 0 stuck jobs, failed 0 exhausted jobs, started 0 machines for orphaned jobs")
    return Recovered(
        requeued=len(report.requeued),
        failed=len(report.failed),
        orphaned_jobs_found=report.orphaned_jobs_found,
        machines_started=report.machines_started,
    )


async def _require_key_or_signature(request: Request, settings: Settings, key: str | None, signature: str | None) -> None:
    if not _key_is_right(settings, key):
        # A body is read only for whoever shows something that it could be checked against.
        _require_signature(settings, signature, request, await request.body() if signature is not None else b"")


def _key_is_right(settings: Settings, given: str | None) -> bool:
    if settings.internal_api_key is None or given is None:
        return False
    return hmac.compare_digest(given.encode("latin-1"), settings.internal_api_key.encode())


def _require_signature(settings: Settings, signature: str | None, request: Request, body: bytes) -> None:
    """By either key, so that keys can be rotated; for this address, this body and this moment."""
    for key in (settings.qstash_current_signing_key, settings.qstash_next_signing_key):
        if key is not None and signature is not None:
            try:
                claims = jwt.decode(
                    signature,
                    key,
                    algorithms=["HS256"],
                    issuer="Upstash",
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "nbf", "iss", "sub", "body"]},
                )
            except (jwt.PyJWTError, ValueError):
                continue
            if _is_for(claims, request, body):
                return
    raise Unauthenticated("This needs the header X-Internal-Api-Key with the internal key, or a valid signature of QStash.")


def _is_for(claims: dict[str, Any], request: Request, body: bytes) -> bool:
    """The scheme is left out of it: whoever ends TLS in front of us may pass the request on as http."""
    meant, asked = urlsplit(str(claims["sub"])), request.url
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    same_body = hmac.compare_digest(str(claims["body"]).rstrip("=").encode(), digest.rstrip("=").encode())
    return same_body and (meant.netloc.lower(), meant.path) == (asked.netloc.lower(), asked.path)
