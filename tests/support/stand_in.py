"""A stand-in for somebody else's HTTP service, with the ways in which real ones fail: slow, 429, 5xx, a cut connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class Asked(msgspec.Struct):
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Answer(msgspec.Struct):
    status: int = 200
    body: Any = b""
    headers: dict[str, str] = {}
    cut: bool = False
    """Close the connection instead of answering."""
    hang: bool = False
    """Never answer."""
    after: Awaitable[Any] | None = None
    """What to wait for first."""


CUT = Answer(cut=True)
HANG = Answer(hang=True)


def too_many(seconds: float) -> Answer:
    return Answer(429, headers={"retry-after": f"{seconds:g}"})


class StandIn:
    """Answers by `reply`, which tests replace, after what was put into `script`, which is used up first."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: list[Answer] = []
        self.reply: Callable[[Asked], Answer] = lambda asked: Answer()
        self.port = 0
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        answer = self.script.pop(0) if self.script else self.reply(asked)
        if answer.after is not None:
            await answer.after
        if answer.cut:
            return False
        if answer.hang:
            await asyncio.Event().wait()
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        lines = [f"HTTP/1.1 {answer.status} Said", f"content-length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()
        return True

    def hang_up(self) -> None:
        for task in list(self._open):
            task.cancel()


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    service = StandIn()
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        service.hang_up()
        await asyncio.sleep(0)
