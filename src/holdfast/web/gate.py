"""The outermost part of the server: a name for each request, limits of size and time, security headers, no stack traces."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import correlation
from holdfast.settings import Settings
from holdfast.web.problems import problem

log = logging.getLogger("holdfast.web")

BODY_MARGIN_BYTES = 64 * 1024
"""For what stands around a job's arguments in a body."""
LENGTH_DIGITS_MAX = 18
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,100}")
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
"""A route that says something else in one of them is left alone."""


class Gate:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._body_bytes_max = settings.payload_bytes_max + BODY_MARGIN_BYTES
        self._seconds = settings.request_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Passage(self._app, self._body_bytes_max, self._seconds, scope, receive, send).run()
        else:
            await self._app(scope, receive, send)


class _Passage:
    """One request on its way through."""

    def __init__(self, app: ASGIApp, body_max: int, seconds: float, scope: Scope, receive: Receive, send: Send) -> None:
        self._app, self._body_max, self._seconds = app, body_max, seconds
        self._scope, self._receive, self._send = scope, receive, send
        self._headers = dict(scope["headers"])
        self._request_id = _request_id(self._headers.get(b"x-request-id"))
        self._status: int | None = None
        self._received_bytes = 0
        self._started = time.monotonic()
        self._timeout: asyncio.Timeout | None = None

    async def run(self) -> None:
        self._scope.setdefault("state", {})["request_id"] = self._request_id
        correlation.request_id.set(self._request_id)
        try:
            await self._within_limits()
        except Exception:
            log.exception("request failed", extra=self._facts())
            self._timeout = None
            sentence = f"Something went wrong here, and it was noted down; the request's id is {self._request_id}."
            await self._answer(500, "internal_error", sentence, request_id=self._request_id)
        if log.isEnabledFor(logging.INFO):
            facts = self._facts()
            log.info("%s %s %s", facts["method"], facts["path"], self._status, extra=facts)

    async def _within_limits(self) -> None:
        announced = self._headers.get(b"content-length", b"")
        # Before it is read as a number: Python refuses those of thousands of digits.
        if announced.isdigit() and (len(announced) > LENGTH_DIGITS_MAX or int(announced) > self._body_max):
            await self._answer(413, "body_too_large", self._too_large())
            return
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                await self._app(self._scope, self._counted_receive, self._dressed_send)
        except TimeoutError:
            if self._timeout is None or not self._timeout.expired():
                raise  # somebody else's
            self._timeout = None
            await self._answer(
                503,
                "request_timeout",
                f"There was no answer within {self._seconds:g} s; whether anything was done is not known: look, or repeat it.",
            )

    async def _counted_receive(self) -> Message:
        message = await self._receive()
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._body_max:
            raise HTTPException(413, self._too_large())
        return message

    def _too_large(self) -> str:
        return f"A body has at most {self._body_max} bytes."

    async def _dressed_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if self._timeout is not None:
                self._timeout.reschedule(None)  # the limit is for the beginning of the answer: streams stay open
            said = {name for name, _ in message["headers"]}
            extra = [header for header in SECURITY_HEADERS if header[0] not in said]
            own = [(name, self._local(value) if name == b"location" else value) for name, value in message["headers"]]
            message["headers"] = [*own, *extra, (b"x-request-id", self._request_id.encode())]
        await self._send(message)

    def _local(self, location: bytes) -> bytes:
        """Where a slash is missing, the framework sends the client to the host that it claims to have asked."""
        parts = urlsplit(location.decode("latin-1"))
        if not parts.netloc or parts.netloc.encode("latin-1") != self._headers.get(b"host"):
            return location
        return urlunsplit(("", "", f"/{parts.path.lstrip('/')}", parts.query, parts.fragment)).encode("latin-1")

    async def _answer(self, status: int, code: str, detail: str, **more: Any) -> None:
        if self._status is None:  # else the answer has begun, and all that is left is to break it off
            await problem(status, code, detail, **more)(self._scope, self._receive, self._dressed_send)

    def _facts(self) -> dict[str, Any]:
        caller = self._scope["state"].get("caller")
        return {
            "request_id": self._request_id,
            "method": self._scope["method"],
            "path": quote(self._scope["path"]),  # a line break in it would begin a line of its own
            "status": self._status,
            "duration_ms": round((time.monotonic() - self._started) * 1000, 3),
            "actor": getattr(caller, "actor", None),
            "tenant": getattr(caller, "tenant", None),
        }


def _request_id(given: bytes | None) -> str:
    return given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
