"""Logging in and out: a key, or a one-time link, is exchanged for a session's cookie that scripts cannot read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import RedirectResponse, Response

from holdfast.errors import Unauthenticated
from holdfast.web import cookies
from holdfast.web.access import Caller
from holdfast.web.dashboard.frame import HEADERS, PageRequest, local_path
from holdfast.web.routing import throttled, web_of


async def ask(page: PageRequest) -> Response:
    return page.render("login.html", next=local_path(page.query.get("next", "")) or "/", wrong="")


async def log_in(page: PageRequest) -> Response:
    cookies.refuse_other_sites(page.request)
    form = await page.form()
    key, link, following = form.get("key"), form.get("link"), local_path(form.get("next")) or "/"
    web = web_of(page.request)

    async def begin() -> tuple[str, Caller]:
        if link:
            return await web.authenticator.begin_session_by_link(link)
        return await web.authenticator.begin_session(key)

    try:
        secret, _caller = await throttled(web, page.request, begin, link or key)
    except Unauthenticated as error:
        return page.render("login.html", status=401, next=following, wrong=str(error))
    before = cookies.session_secret(page.request)
    if before is not None:
        await web.authenticator.end_session(before)
    answer = RedirectResponse(page.prefix + following, 303, headers=HEADERS)
    cookies.set_session(page.request, answer, secret)
    return answer


async def log_out(page: PageRequest) -> Response:
    answer = RedirectResponse(page.link("/login"), 303, headers=HEADERS)
    secret = cookies.session_secret(page.request)
    if secret is not None:
        cookies.require_own_page(page.request)
        await web_of(page.request).authenticator.end_session(secret)
        cookies.drop_session(page.request, answer)
    return answer


ROUTES: tuple[tuple[str, str, Callable[[PageRequest], Awaitable[Response]]], ...] = (
    ("/login", "GET", ask),
    ("/login", "POST", log_in),
    ("/logout", "POST", log_out),
)
