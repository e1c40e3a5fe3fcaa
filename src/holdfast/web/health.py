"""Whether this process lives, and whether it can do its work. Anybody may ask, so nothing is told that nobody should know."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from holdfast.errors import NotMigrated, SchemaTooNew, StorageError
from holdfast.web.problems import answers, problem
from holdfast.web.routing import HoldfastDep, web_of

log = logging.getLogger("holdfast.web")

READY_SECONDS = 2.0
router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/healthz", response_model=Health)
async def healthz() -> Health:
    """The process lives."""
    return Health()


@router.get("/readyz", response_model=Health, responses=answers(503))
async def readyz(request: Request, hf: HoldfastDep) -> Health | Response:
    """The database answers, and its schema is the one that this version works with."""
    if web_of(request).stopping.is_set():
        return problem(503, "stopping", "This server is going down.")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await hf.store.schema_version()
    except TimeoutError:
        return problem(503, "storage_slow", f"The database did not answer within {READY_SECONDS:g} s.")
    except (NotMigrated, SchemaTooNew) as error:
        log.warning("Not ready: %s", error)
        return problem(503, error.code, "The database's schema is not that of this version; run `holdfast migrate`.")
    except StorageError as error:
        log.warning("Not ready: %s", error)
        return problem(503, error.code, "The database cannot be used; the server's log says why.")
    return Health()
