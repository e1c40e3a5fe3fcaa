"""The cookie of a browser's session, and whether a request comes from a page of ours."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from holdfast.errors import Forbidden
from holdfast.people.sessions import SESSION_SECONDS

COOKIE = "holdfast_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class CrossSite(Forbidden):
    code = "cross_site"


def set_session(request: HTTPConnection, response: Response, secret: str) -> None:
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(SESSION_SECONDS),
        path=_path(request),
        secure=not _plain_http_to_this_machine(request),
        httponly=True,
        samesite="lax",
    )


def drop_session(request: HTTPConnection, response: Response) -> None:
    response.delete_cookie(
        COOKIE, path=_path(request), secure=not _plain_http_to_this_machine(request), httponly=True, samesite="lax"
    )


def session_secret(request: HTTPConnection) -> str | None:
    return request.cookies.get(COOKIE)


def require_own_page(request: HTTPConnection) -> None:
    """A browser sends its cookies along with what a stranger's page asks for: what changes something must come from ours."""
    if _method(request) not in SAFE_METHODS and not _from_own_page(request):
        raise CrossSite("A request with a session's cookie that changes something must come from a page of this server.")


def refuse_other_sites(request: HTTPConnection) -> None:
    """For requests that are no browser's as a rule: one that says it comes from another page is refused."""
    if _method(request) not in SAFE_METHODS and _says_where_from(request) and not _from_own_page(request):
        raise CrossSite("This request comes from a page of another server.")


def is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _says_where_from(request: HTTPConnection) -> bool:
    return "sec-fetch-site" in request.headers or "origin" in request.headers


def _from_own_page(request: HTTPConnection) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")  # none: typed by hand, no page is behind it
    origin = urlsplit(request.headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == request.headers.get("host")


def _method(request: HTTPConnection) -> str:
    return str(request.scope.get("method", "GET"))


def _path(request: HTTPConnection) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/") or "/"


def _plain_http_to_this_machine(request: HTTPConnection) -> bool:
    return request.url.scheme == "http" and is_loopback(request.url.hostname)
