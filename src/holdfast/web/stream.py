"""Server-sent events: pings, an end that is said, resume by number, and the right to watch asked for again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import TooManyStreams
from holdfast.web.access import Caller
from holdfast.web.routing import Web, web_of

PING_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
STREAMS_PER_CALLER_MAX = 100
HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
MEDIA_TYPE = "text/event-stream"
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events. The last one is `end`, and says why; where it is missing, connect again.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


def event(data: Any, *, id: int | str | None = None, name: str | None = None) -> bytes:
    """JSON has no line breaks outside of strings, and none unescaped inside: one `data:` line is enough."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def stream(request: Request, caller: Caller, source: AsyncIterator[bytes]) -> Response:
    web = web_of(request)
    if web.streams[caller.actor] >= STREAMS_PER_CALLER_MAX:
        raise TooManyStreams(f"There are {STREAMS_PER_CALLER_MAX} open streams of this caller already; close some.")
    return StreamingResponse(_events(web, request, caller, source), media_type=MEDIA_TYPE, headers=HEADERS)


async def _events(web: Web, request: Request, caller: Caller, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    web.streams[caller.actor] += 1
    stopping = asyncio.ensure_future(web.stopping.wait())
    following: asyncio.Future[bytes | None] | None = None
    check_seconds = web.hf.settings.stream_check
    checked_at = sent_at = time.monotonic()
    try:
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        while not stopping.done():
            following = following or asyncio.ensure_future(_next(source))
            now = time.monotonic()
            pause = min(sent_at + PING_SECONDS, checked_at + check_seconds) - now
            both: set[asyncio.Future[Any]] = {following, stopping}
            await asyncio.wait(both, timeout=max(0.0, pause), return_when=asyncio.FIRST_COMPLETED)
            now = time.monotonic()
            if now >= checked_at + check_seconds:
                checked_at = now
                if not await web.authenticator.still(caller, request):
                    yield event({"reason": "access_ended"}, name="end")
                    return
            if following.done():
                piece = following.result()
                following = None
                if piece is None:
                    yield event({"reason": "ended"}, name="end")
                    return
                sent_at = now
                yield piece
            elif now >= sent_at + PING_SECONDS:
                sent_at = now
                yield b": ping\n\n"
    finally:
        web.streams[caller.actor] -= 1
        if not web.streams[caller.actor]:
            del web.streams[caller.actor]
        await _stop(stopping, following, source)


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)


async def _stop(stopping: asyncio.Future[Any], following: asyncio.Future[Any] | None, source: AsyncIterator[bytes]) -> None:
    for waiting in (stopping, following):
        if waiting is not None and not waiting.done():
            waiting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await waiting
    await source.aclose()  # type: ignore[attr-defined]
