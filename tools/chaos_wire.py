"""A TCP proxy in front of PostgreSQL, that cuts, delays and half-opens connections: what networks do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PIECE_BYTES = 65536
CLOSE_SECONDS = 3.0


class Wire:
    """`url` leads through it. Everything happens on the loop that opened it."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._silent = False
        self._forgotten: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def listen(self) -> Wire:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"postgresql://{self._target.netloc.rpartition('@')[0]}@127.0.0.1:{port}{self._target.path}"
        return self

    def cut(self) -> int:
        """Both sides are reset at once; how many connections there were."""
        count = len(self._ends) // 2
        for end in list(self._ends):
            end.transport.abort()
        return count

    async def delay(self, seconds: float) -> None:
        """Nothing gets through for a while, and then everything does."""
        self._open.clear()
        await asyncio.sleep(seconds)
        self._open.set()

    async def half_open(self, seconds: float) -> None:
        """What is sent is swallowed and nobody is told, as behind a router that forgot; then those connections are reset."""
        self._silent = True
        await asyncio.sleep(seconds)
        self._silent = False
        self.cut()

    def forget(self) -> int:
        """The same for ever, but only on the connections that are open now; how many there are."""
        self._forgotten |= self._ends
        return len(self._ends) // 2

    async def close(self) -> None:
        self._server.close()
        self._open.set()
        self.cut()
        if self._carrying:  # cancelled only if need be: Python 3.11 prints a traceback for each such task
            await asyncio.wait(self._carrying, timeout=CLOSE_SECONDS)
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        try:
            up_reader, up_writer = await self._connected()
        except OSError:  # the server is down: so is the wire
            writer.transport.abort()
            return
        both = {writer, up_writer}
        self._ends |= both
        try:
            await asyncio.gather(self._pass_on(reader, up_writer), self._pass_on(up_reader, writer))
        finally:
            self._ends -= both
            self._forgotten -= both
            for end in both:
                end.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = parse_qs(self._target.query).get("host", [""])[0]
        if folder.startswith("/"):
            return await asyncio.open_unix_connection(_socket_in(folder))
        return await asyncio.open_connection(self._target.hostname, self._target.port)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await self._open.wait()
                if not self._silent and writer not in self._forgotten:
                    writer.write(piece)
                    await writer.drain()
        with suppress(OSError):
            writer.close()


def _socket_in(folder: str) -> str:
    """Where PostgreSQL listens; a name that is not there while it is down."""
    return str(next(Path(folder).glob(".s.PGSQL.*[0-9]"), Path(folder, "gone")))
