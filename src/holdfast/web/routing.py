"""What every router of the API stands on: who calls is settled before a byte of the body is read."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.errors import NotFound, RateLimited, Unauthenticated
from holdfast.web.access import Caller, Role
from holdfast.web.auth import Authenticator
from holdfast.web.idempotent import HEADER, METHODS, once
from holdfast.web.problems import GUARDED_ROUTE
from holdfast.web.ratelimit import CallerRate, TokenBuckets, network_of


@dataclasses.dataclass
class Web:
    """What belongs to one served application: `request.app.state.web`."""

    hf: Holdfast
    authenticator: Authenticator
    stopping: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set when the server goes down: open streams end."""
    strangers: TokenBuckets | None = None
    """Failed logins, by address and credential. In this process only."""
    rate: CallerRate = dataclasses.field(init=False)
    streams: Counter[str] = dataclasses.field(default_factory=Counter)
    """How many each caller has open."""

    def __post_init__(self) -> None:
        self.rate = CallerRate(self.hf)


def web_of(request: Request) -> Web:
    web: Web = request.app.state.web
    return web


T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Guarded(APIRoute):
    """A route that somebody calls: known, within his rate, and where he names an Idempotency-Key, answered once.

    Routes that nobody has to sign in for are plain ones."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        reads_by_itself = getattr(self.endpoint, "reads_by_itself", False)
        handle = self.endpoint if reads_by_itself else super().get_route_handler()
        hide = tuple({"secret"} & set(getattr(self.response_model, "model_fields", ())))
        once_by_itself = getattr(self.endpoint, "once_by_itself", False)

        async def guarded(request: Request) -> Response:
            web = web_of(request)
            caller = request.state.caller = await known_caller(web, request)
            taken = await web.rate.take(caller.actor) if caller.role is not Role.SERVICE else None
            if HEADER in request.headers and request.method in METHODS and not once_by_itself:
                work = functools.partial(handle, request)
                response = await once(web.hf, request, work, tenant=caller.tenant, caller=caller.actor, hide=hide)
            else:
                response = await handle(request)
            if taken is not None:
                response.headers.update(taken.headers)
            return response

        return guarded


async def known_caller(web: Web, request: Request) -> Caller:
    return await web.authenticator.caller_of(request, functools.partial(throttled, web, request))


async def throttled(web: Web, request: Request, ask: Callable[[], Awaitable[T]], credential: str) -> T:
    """Throttle a credential that fails again and again, and no other: behind a proxy, all clients may share one address."""
    if web.strangers is None:
        return await ask()
    name = _throttled_name(request, credential)
    wait = web.strangers.wait(name)
    if wait:
        raise RateLimited(f"Too many failed logins with these credentials. Try again in {max(1.0, wait):.0f} s.", wait)
    try:
        return await ask()
    except Unauthenticated:
        web.strangers.take(name)
        raise


def _throttled_name(request: Request, credential: str) -> str:
    """A digest: short however long the credential is, and opens nothing."""
    address = network_of(request.client.host) if request.client else ""
    return hashlib.sha256(f"{address}\0{credential}".encode(errors="surrogatepass")).hexdigest()


F = TypeVar("F", bound=Callable[..., Any])


def once_by_itself(endpoint: F) -> F:
    """For an endpoint that sees to the Idempotency-Key in its own transaction."""
    endpoint.once_by_itself = True  # type: ignore[attr-defined]
    return endpoint


def reads_by_itself(endpoint: F) -> F:
    """For an endpoint that takes the request alone: FastAPI documents it, and takes no part in the call."""
    endpoint.reads_by_itself = True  # type: ignore[attr-defined]
    return endpoint


def guarded_router(tag: str) -> APIRouter:
    """The paths of its routes are below /api."""
    return APIRouter(tags=[tag], route_class=Guarded, responses=GUARDED_ROUTE)


async def _caller(request: Request) -> Caller:
    return caller_of(request)


async def _holdfast(request: Request) -> Holdfast:
    return web_of(request).hf


CallerDep = Annotated[Caller, Depends(_caller)]
HoldfastDep = Annotated[Holdfast, Depends(_holdfast)]


def scope(caller: Caller, asked: str | None) -> str | None:
    """The tenant that goes into the query. The service names one, or means all; for others only their own is there."""
    if caller.tenant is None:
        return asked
    if asked is not None and asked != caller.tenant:
        raise NotFound(f"There is no organization {asked!r:.80}.")
    return caller.tenant


def link(request: Request, path: str) -> str:
    """An address of the API below whatever prefix it is mounted at. Without a host: that is for the client to know."""
    return f"{request.scope.get('root_path', '').rstrip('/')}/api{path}"


def caller_of(request: Request) -> Caller:
    """As CallerDep, for a route where the cost of a dependency counts."""
    caller: Caller = request.state.caller
    return caller


async def read_body(request: Request, model: type[M]) -> M:
    """The same for the body: read and checked in one go. The route tells of it by `openapi_extra=takes(Model)`."""
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        wrong = {"type": "content_type", "loc": ("body",), "msg": "Send JSON, and say so by Content-Type: application/json"}
        raise RequestValidationError([wrong])
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from None


def takes(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Encoded at once: the models describe what is answered, they need not check it again at every call."""
    return Response(msgspec.json.encode(value), status, headers=headers, media_type="application/json")
