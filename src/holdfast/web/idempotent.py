"""Idempotency-Key over HTTP: the same request again gets the first answer, status, headers and body; nothing is done twice.

Three ways in: `idempotent_route` for routers of FastAPI, `idempotent` for endpoints of Starlette, and `once` or
`once_in_transaction` inside an endpoint. The core is `hf.idempotent`.
"""

from __future__ import annotations

import base64
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.limits.idempotency import Once
from holdfast.store.protocol import Transaction
from holdfast.web.problems import problem_of

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
METHODS = frozenset({"POST", "PATCH"})
"""The others may be repeated anyway."""
_NOT_KEPT = frozenset({"content-length", "date", "server", "set-cookie", "connection", "transfer-encoding"})

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
WhoAsks = Callable[[Request], tuple[str | None, str] | Awaitable[tuple[str | None, str]]]
"""Tenant and caller of a request. It has to check what the request claims: an answer is given again only to whom it returns."""


class Kept(msgspec.Struct):
    """A response as it is stored."""

    status: int
    headers: list[tuple[str, str]]
    body: str
    base64: bool = False

    def response(self) -> Response:
        again = Response(base64.b64decode(self.body) if self.base64 else self.body, self.status)
        again.raw_headers[:] = [header for header in again.raw_headers if header[0] == b"content-length"]
        again.raw_headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        again.headers[REPLAYED] = "true"
        return again


async def once(
    hf: Holdfast,
    request: Request,
    work: Callable[[], Awaitable[Response]],
    *,
    tenant: str | None,
    caller: str,
    required: bool = False,
    hide: Sequence[str] = (),
) -> Response:
    """Do the work, or answer as it was answered before. `hide`: fields of the JSON answer that are shown now and never again,
    such as secrets: the kept answer has null there."""
    async with await _once(hf, request, tenant, caller, None, required) as found:
        return await _answer(found, work, hide)


async def once_in_transaction(
    hf: Holdfast,
    request: Request,
    work: Callable[[Transaction | None], Awaitable[Response]],
    *,
    tenant: str | None,
    caller: str,
    required: bool = False,
    hide: Sequence[str] = (),
) -> Response:
    """The same where all that the work writes goes through the transaction that it is given: then key, work and answer are
    committed together. Without a key there is none to be given."""
    if not required and HEADER not in request.headers:
        return await work(None)
    async with hf.transaction() as tx, await _once(hf, request, tenant, caller, tx, required) as found:
        return await _answer(found, lambda: work(tx), hide)


def idempotent(
    hf: Holdfast, *, who: WhoAsks, required: bool = False, hide: Sequence[str] = ()
) -> Callable[[Endpoint], Endpoint]:
    """Decorates an endpoint of Starlette that takes the request. Answers are kept; what it raises is not."""

    def decorate(endpoint: Endpoint) -> Endpoint:
        @functools.wraps(endpoint)
        async def answered(request: Request) -> Response:
            if request.method not in METHODS or not (required or HEADER in request.headers):
                return await endpoint(request)
            asks = who(request)
            tenant, caller = await asks if inspect.isawaitable(asks) else asks
            try:
                work = functools.partial(endpoint, request)
                return await once(hf, request, work, tenant=tenant, caller=caller, required=required, hide=hide)
            except HoldfastError as error:
                told = problem_of(error) if error.code.startswith("idempotency_") else None
                if told is None:
                    raise
                return told

        return answered

    return decorate


def idempotent_route(hf: Holdfast, *, who: WhoAsks, required: bool = False, hide: Sequence[str] = ()) -> type[APIRoute]:
    """For `APIRouter(route_class=…)`: every POST and PATCH of the router may carry an Idempotency-Key."""

    class IdempotentRoute(APIRoute):
        def get_route_handler(self) -> Endpoint:
            return idempotent(hf, who=who, required=required, hide=hide)(super().get_route_handler())

    return IdempotentRoute


async def _once(
    hf: Holdfast, request: Request, tenant: str | None, caller: str, tx: Transaction | None, required: bool
) -> Once:
    scope = [request.method, request.url.path, caller]
    body = request.url.query.encode() + b"\n" + await request.body()
    return hf.idempotent(request.headers.get(HEADER), scope=scope, body=body, tenant=tenant, tx=tx, required=required)


async def _answer(found: Once, work: Callable[[], Awaitable[Response]], hide: Sequence[str]) -> Response:
    if found.replayed:
        return msgspec.convert(found.response, Kept).response()
    response = await work()
    if response.status_code < 500 and response.status_code != 429:
        found.store(await _kept(response, hide))
    return response


async def _kept(response: Response, hide: Sequence[str]) -> Kept:
    body = await _body_of(response)
    headers = [(name, value) for name, value in response.headers.items() if name not in _NOT_KEPT]
    shown = msgspec.json.decode(body) if hide and "json" in response.headers.get("content-type", "") else None
    if isinstance(shown, dict):
        body = msgspec.json.encode({name: None if name in hide else value for name, value in shown.items()})
    try:
        text = bytes(body).decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return Kept(response.status_code, headers, base64.b64encode(body).decode(), True)
    return Kept(response.status_code, headers, text)


async def _body_of(response: Response) -> bytes:
    """A stream is read to its end: what is to be given again must be known whole."""
    stream: Any = getattr(response, "body_iterator", None)
    if stream is None:
        return bytes(response.body)
    parts = [part.encode() if isinstance(part, str) else bytes(part) async for part in stream]

    async def again() -> Any:
        for part in parts:
            yield part

    response.body_iterator = again()  # type: ignore[attr-defined]
    return b"".join(parts)
