"""The cookie of a browser's session, and whether a request comes from a page of ours."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from holdfast.errors import Forbidden
from holdfast.people.sessions import SESSION_SECONDS

COOKIE = "holdfast_session"
"""Its plain name, for http on this machine. Over TLS it has a prefix, and a browser then refuses it from any other host."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class CrossSite(Forbidden):
    code = "cross_site"


def set_session(request: HTTPConnection, response: Response, secret: str) -> None:
    plain = _plain_http_to_this_machine(request) and _page_on_this_machine(request)
    response.set_cookie(
        COOKIE if plain else _secure_name(request),
        secret,
        max_age=int(SESSION_SECONDS),
        path=_path(request),
        secure=not plain,
        httponly=True,
        samesite="lax",
    )


def drop_session(request: HTTPConnection, response: Response) -> None:
    name, _ = _sent(request) or (COOKIE, "")
    response.delete_cookie(name, path=_path(request), secure=name != COOKIE, httponly=True, samesite="lax")


def session_secret(request: HTTPConnection) -> str | None:
    sent = _sent(request)
    return None if sent is None else sent[1]


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
    origin = _origin(request)
    return bool(origin.netloc) and origin.netloc == request.headers.get("host")


def _origin(request: HTTPConnection) -> SplitResult:
    try:
        return urlsplit(request.headers.get("origin", ""))
    except ValueError:
        return SplitResult("", "", "", "", "")


def _method(request: HTTPConnection) -> str:
    return str(request.scope.get("method", "GET"))


def _path(request: HTTPConnection) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/") or "/"


def _sent(request: HTTPConnection) -> tuple[str, str] | None:
    """Name and value. The plain name counts on this machine only: elsewhere a neighbouring host could have planted it."""
    names = [_secure_name(request), *([COOKIE] if _plain_http_to_this_machine(request) else [])]
    return next(((name, request.cookies[name]) for name in names if name in request.cookies), None)


def _secure_name(request: HTTPConnection) -> str:
    """Browsers accept `__Host-` with the path / alone."""
    return ("__Host-" if _path(request) == "/" else "__Secure-") + COOKIE


def _plain_http_to_this_machine(request: HTTPConnection) -> bool:
    forwarded = request.headers.get("x-forwarded-proto", "") + request.headers.get("forwarded", "")
    try:
        return request.url.scheme == "http" and is_loopback(request.url.hostname) and "https" not in forwarded.lower()
    except ValueError:
        return False


def _page_on_this_machine(request: HTTPConnection) -> bool:
    """A proxy on this machine that ends TLS may send us plain http with a Host of its own and no X-Forwarded-Proto. The
    Origin, which a browser sends with every form and script that logs in, still names the public address."""
    origin = _origin(request)
    return "origin" not in request.headers or (origin.scheme == "http" and is_loopback(origin.hostname))
