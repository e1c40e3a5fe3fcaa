"""The served application: routers, problems, OpenAPI. `hf.asgi()` makes one; it can be mounted under any prefix."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast.app import Holdfast
from holdfast.limits.idempotency import KEY_CHARS_MAX
from holdfast.version import VERSION
from holdfast.web import health, inbound, metrics, recovery
from holdfast.web.api import (
    batches,
    breakers,
    budgets,
    bulk,
    changes,
    enqueue,
    events,
    jobs,
    keys,
    logs,
    machines,
    members,
    projects,
    queues,
    schedules,
    session,
    stats,
    tenants,
    webhooks,
)
from holdfast.web.auth import Authenticator
from holdfast.web.dashboard import install as dashboard
from holdfast.web.gate import Gate
from holdfast.web.idempotent import HEADER, METHODS
from holdfast.web.models import NewJob
from holdfast.web.problems import ANY_ROUTE, Problem, answers, handle_errors
from holdfast.web.ratelimit import TokenBuckets
from holdfast.web.routing import Web

ROUTERS: tuple[APIRouter, ...] = (
    enqueue.router,  # first: routes are looked through in this order
    changes.router,  # before jobs: /jobs/stream is no job's id, nor are /jobs/cancel and /jobs/retry
    bulk.router,
    jobs.router,
    logs.router,
    queues.router,
    machines.router,
    tenants.router,
    budgets.router,
    breakers.router,
    events.router,
    stats.router,
    keys.router,
    members.router,
    projects.router,
    schedules.router,
    batches.router,
    inbound.router,  # before webhooks: /webhooks/in is no webhook's id
    webhooks.router,
    session.router,
    session.door,
    recovery.router,
)
"""Below /api."""
ROOT_ROUTERS: tuple[APIRouter, ...] = (health.router, metrics.router)
"""Without the prefix."""
SERVED = APIRouter()
"""All of them as they are served. Routes are costly to build: they are built once in a process, whatever is made of them."""
for _router in ROUTERS:
    SERVED.include_router(_router, prefix="/api", responses=ANY_ROUTE)
for _router in ROOT_ROUTERS:
    SERVED.include_router(_router, responses=ANY_ROUTE)
DESCRIPTION = "Errors are problem+json with a stable `code`. Lists come in pages: `next_cursor` of one is `cursor` of the next."
SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key, or a JWT."},
}

IDEMPOTENCY_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
    "description": "The same request again with the same key is answered as the first one was, and nothing is done twice.",
}


class Server(FastAPI):
    """FastAPI whose OpenAPI tells of problems and of who has to sign in where."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            schema = get_openapi(title=self.title, version=self.version, description=DESCRIPTION, routes=self.routes)
            components = schema.setdefault("components", {})
            components.setdefault("schemas", {}).update(
                {model.__name__: model.model_json_schema() for model in (Problem, NewJob)}
            )
            components["securitySchemes"] = SECURITY_SCHEMES
            for method, operation in (each for path in schema["paths"].values() for each in path.items()):
                _describe_guard(method, operation)
            self.openapi_schema = schema
        return self.openapi_schema


def _describe_guard(method: str, operation: dict[str, Any]) -> None:
    """What routing.Guarded does is the same for all its routes."""
    if "401" not in operation["responses"] or "security" in operation:
        return
    operation["security"] = [{name: []} for name in SECURITY_SCHEMES]
    if method.upper() in METHODS:
        operation.setdefault("parameters", []).append(IDEMPOTENCY_KEY)
        operation["responses"] |= {str(status): answer for status, answer in answers(409).items()}


def make_app(hf: Holdfast, authenticator: Authenticator) -> Server:
    app = Server(title="Holdfast", version=VERSION, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    strangers = TokenBuckets(hf.settings.api_rate) if hf.settings.api_rate else None
    app.state.web = Web(hf, authenticator, strangers=strangers)
    handle_errors(app)
    app.router.routes.extend(SERVED.routes)
    for extension in hf.extensions.values():
        for given in extension.routers:
            router = given if isinstance(given, APIRouter) else given()
            app.include_router(router, prefix="/api", responses=ANY_ROUTE)
    dashboard.install(app, hf)
    metrics.install(app, hf)
    app.add_middleware(Gate, settings=hf.settings)
    return app
