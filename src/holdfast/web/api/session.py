"""/api/session: a browser shows a key or a one-time link, and gets a cookie in exchange."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.errors import InvalidOption
from holdfast.web import cookies
from holdfast.web.access import Caller
from holdfast.web.models import Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, guarded_router, reply, throttled, web_of

router = guarded_router("session")
door = APIRouter(tags=["session"])
"""Those that nobody has to be logged in for."""

Secret = Annotated[str, Field(min_length=1, max_length=200)]


class Login(Taken):
    """One of the two."""

    key: Secret | None = Field(None, description="An API key.")
    link: Secret | None = Field(None, description="What stands behind the # of a one-time login link.")


class LoggedIn(BaseModel):
    tenant: str | None
    role: Literal["viewer", "member", "admin", "owner", "service"]
    actor: str = Field(description="Under this name acts are recorded.")


@door.post(
    "/session",
    summary="Log a browser in",
    response_model=LoggedIn,
    responses=answers(401, 403),
    openapi_extra={"security": []},
)
async def log_in(request: Request, body: Login) -> Response:
    """Answers a cookie that scripts cannot read. Every login begins a new session, and ends the one there was."""
    cookies.refuse_other_sites(request)
    if (body.key is None) == (body.link is None):
        raise InvalidOption("Log in with `key` or with `link`: exactly one of them.")
    web = web_of(request)
    authenticator = web.authenticator

    async def begin() -> tuple[str, Caller]:
        if body.key is not None:
            return await authenticator.begin_session(body.key)
        return await authenticator.begin_session_by_link(str(body.link))

    secret, caller = await throttled(web, request, begin, str(body.key or body.link))
    before = cookies.session_secret(request)
    if before is not None:
        await authenticator.end_session(before)
    answer = reply(_shown(caller))
    cookies.set_session(request, answer, secret)
    return answer


@router.get("/session", summary="Who calls", response_model=LoggedIn)
async def who_calls(caller: CallerDep) -> Response:
    return reply(_shown(caller))


@door.delete("/session", summary="Log out", status_code=204, response_class=Response, responses=answers(403))
async def log_out(request: Request) -> Response:
    """Also where the session has ended already."""
    answer = Response(status_code=204)
    secret = cookies.session_secret(request)
    if secret is not None:
        cookies.require_own_page(request)
        await web_of(request).authenticator.end_session(secret)
        cookies.drop_session(request, answer)
    return answer


def _shown(caller: Caller) -> dict[str, str | None]:
    return {"tenant": caller.tenant, "role": caller.role.word, "actor": caller.actor}
