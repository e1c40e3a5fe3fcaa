"""A TCP proxy in front of a server, that can cut its connections, refuse new ones, or go silent on streams."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.support.served import Served

STREAM = b"/logs/stream"
PIECE_BYTES = 65536


class Proxy:
    """`cut()` and `restore()`; `silence_streams()` keeps connections open on which nothing comes any more."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._refusing = self._silent = False
        self._open: set[asyncio.StreamWriter] = set()
        self._streams: set[asyncio.StreamWriter] = set()
        self._server = served.run(self._listen())
        self.base = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._carry, "127.0.0.1", 0)

    def cut(self) -> None:
        self._served.run(self._cut())

    async def _cut(self) -> None:
        self._refusing = True
        for writer in list(self._open):
            writer.transport.abort()

    def restore(self) -> None:
        self._refusing = self._silent = False
        self._served.run(self._end_silent())

    def silence_streams(self) -> None:
        self._silent = True

    def close(self) -> None:
        self._served.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _end_silent(self) -> None:
        for writer in list(self._streams):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._served.port)
        self._open |= {writer, up_writer}
        try:
            await asyncio.gather(self._up(reader, up_writer, writer), self._down(up_reader, writer))
        finally:
            self._open -= {writer, up_writer}
            self._streams.discard(writer)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                if STREAM in piece:
                    self._streams.add(client)
                writer.write(piece)
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                if not (self._silent and writer in self._streams):
                    writer.write(piece)
        writer.close()
