"""The routers about people behind a small application, and clients that speak for somebody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.web.api import keys, members, projects, session
from holdfast.web.auth import Authenticator
from holdfast.web.problems import handle_errors
from holdfast.web.routing import Web

BASE = "http://testserver"


def served(hf: Holdfast, authenticator: Authenticator | None = None) -> FastAPI:
    app = FastAPI()
    app.state.web = Web(hf, authenticator or Authenticator(hf))
    handle_errors(app)
    for router in (keys.router, members.router, projects.router, session.router, session.door):
        app.include_router(router, prefix="/api")
    return app


@asynccontextmanager
async def client(app: FastAPI, token: str | None = None, base: str = BASE, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks as whoever the token belongs to."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers) as speaking:
        yield speaking


async def key_of(hf: Holdfast, role: str, tenant: str | None = "acme", **more: Any) -> str:
    made = await hf.keys.create(tenant=None if role == "service" else tenant, role=role, **more)
    return made.secret
