"""The dashboard's routes inside the served application: pages, static files, and errors that people read."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast.app import Holdfast
from holdfast.errors import ConfigError, HoldfastError, MachinesUnavailable, Unauthenticated
from holdfast.pages import Pages
from holdfast.pages import Route as PageRoute
from holdfast.web.access import Act, Role, require
from holdfast.web.dashboard import views
from holdfast.web.dashboard.frame import HEADERS, PageRequest, Site
from holdfast.web.dashboard.rendering import PACKAGE, environment
from holdfast.web.dashboard.views import login
from holdfast.web.problems import STATUSES
from holdfast.web.routing import known_caller, web_of

log = logging.getLogger("holdfast.web")

TITLES = {
    401: "Please log in",
    403: "Not for this role",
    404: "There is nothing here",
    409: "That is not possible any more",
    422: "That cannot be done like this",
    429: "Too many requests",
    500: "Something went wrong",
    502: "The database cannot be reached",
    503: "Not available right now",
}
NO_MACHINES = "The provider of machines did not do it"
NO_PAGES = ("/api/", "/static/", "/metrics", "/healthz", "/readyz")
KEEP_SECONDS = 365 * 86_400

Endpoint = Callable[[Request], Awaitable[Response]]


def install(app: FastAPI, hf: Holdfast) -> None:
    """After all other routes: what they answer stays theirs."""
    joined = [group for extension in hf.extensions.values() for group in extension.pages]
    for group in joined:
        if not isinstance(group, Pages):
            raise ConfigError(f"pages= takes holdfast.pages.Pages, not {type(group).__name__}.")
    groups = [*views.GROUPS, *joined]
    site = app.state.dashboard = Site(hf, environment(groups), groups)
    for group in groups:
        for route in group.routes:
            _known_act(group, route.act)
            app.add_route(route.path, _endpoint(site, route), methods=[route.method], include_in_schema=False)
        for entry in group.nav:
            _known_act(group, entry.act)
    for path, method, view in login.ROUTES:
        app.add_route(path, _door(site, view), methods=[method], include_in_schema=False)
    app.mount("/static", _Static(packages=[(PACKAGE, "static")]), name="static")
    _errors_as_pages(app, site)


def _known_act(group: Pages, act: str) -> None:
    if act.upper() not in Act.__members__:
        known = ", ".join(sorted(name.lower() for name in Act.__members__))
        raise ConfigError(f"The pages of {group.name} ask for {act!r}, which is nothing to be allowed; there are {known}.")


def _endpoint(site: Site, route: PageRoute) -> Endpoint:
    act = Act[route.act.upper()]

    async def answer(request: Request) -> Response:
        web = web_of(request)
        try:
            caller = request.state.caller = await known_caller(web, request)
            if caller.role is not Role.SERVICE:
                await web.rate.take(caller.actor)
            require(caller, act)
            found: Response = await route.view(PageRequest(site, request, caller))
        except Unauthenticated as error:
            return _to_login(site, request, error)
        except HoldfastError as error:
            return _problem_page(site, request, error)
        except Exception:
            return _failed(site, request)
        return found

    return answer


def _door(site: Site, view: Callable[[PageRequest], Awaitable[Response]]) -> Endpoint:
    """For the pages that nobody has to be logged in for."""

    async def answer(request: Request) -> Response:
        try:
            return await view(PageRequest(site, request, None))
        except HoldfastError as error:
            return _problem_page(site, request, error)
        except Exception:
            return _failed(site, request)

    return answer


def _to_login(site: Site, request: Request, error: Unauthenticated) -> Response:
    page = PageRequest(site, request, None)
    if request.method != "GET":
        return _page(page, 401, f"{error} Nothing was done.")
    asked = {} if page.path == "/" else {"next": page.address.removeprefix(page.prefix)}
    return RedirectResponse(page.link("/login", **asked), 303, headers=HEADERS)


def _problem_page(site: Site, request: Request, error: HoldfastError) -> Response:
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    if status is None:
        return _failed(site, request)
    page = PageRequest(site, request, None)
    page._caller = getattr(request.state, "caller", None)
    if status >= 500:
        log.warning("%s: %s", error.code, error)
        if isinstance(error, MachinesUnavailable):
            return _page(page, status, "Whoever runs this server finds the reason in its log.", NO_MACHINES)
        return _page(page, status, "The database cannot be used right now. Nothing was changed; this page can be loaded again.")
    answer = _page(page, status, str(error))
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return answer


def _failed(site: Site, request: Request) -> Response:
    """Our own fault: the reader is told nothing of it but the name under which it was noted down."""
    request_id = request.scope.get("state", {}).get("request_id", "")
    log.exception("a page failed", extra={"request_id": request_id, "path": request.scope["path"]})
    return _page(PageRequest(site, request, None), 500, f"It was noted down; the request's id is {request_id}.")


def _page(page: PageRequest, status: int, sentence: str, title: str | None = None) -> Response:
    title = title or TITLES.get(status, "That did not work")
    return page.render("problem.html", status=status, code=status, title=title, sentence=sentence)


def _errors_as_pages(app: FastAPI, site: Site) -> None:
    """An address that is nothing: a browser gets a page, programs get the problem that they know."""
    as_problem: Any = app.exception_handlers[HTTPException]

    @app.exception_handler(HTTPException)
    async def frameworks(request: Request, error: HTTPException) -> Response:
        path = PageRequest(site, request, None).path
        wants_page = "text/html" in request.headers.get("accept", "") and not path.startswith(NO_PAGES)
        if not wants_page or error.status_code not in (404, 405):
            answer: Response = await as_problem(request, error)
            return answer
        return _page(PageRequest(site, request, None), error.status_code, "The address may be old, or mistyped.")


class _Static(StaticFiles):
    """Named by content, a file may be kept for good. A worker lives by the policy that its own script comes with."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        versioned = scope.get("query_string", b"").startswith(b"v=")
        answer.headers["Cache-Control"] = f"public, max-age={KEEP_SECONDS}, immutable" if versioned else "no-cache"
        for name, value in HEADERS.items():
            answer.headers[name] = value
        return answer
