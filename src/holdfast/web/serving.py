"""The server as a process: uvicorn around the application, with the reaper beside it, and an end that open streams hear of."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from holdfast.app import Holdfast
from holdfast.errors import ConfigError
from holdfast.processes.reaper import Reaper
from holdfast.web.server import Server

BACKLOG = 2048
IDLE_CONNECTION_SECONDS = 75
"""Longer than the proxies in front keep theirs, so that they do not send into a connection that is just being closed."""


class _Uvicorn(uvicorn.Server):
    """Says where it listens, and tells open streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, app: Server, listens: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listens()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """By the loop: uvicorn's own way raises them again at its end, and the process would die of what it has just obeyed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """A second signal does not wait for what is under way."""
        self._app.state.web.stopping.set()
        self.force_exit, self.should_exit = self.should_exit, True


async def serve(hf: Holdfast, host: str, port: int, say: Callable[[str], None]) -> None:
    """Until a signal comes. Refuses before it listens where it could not work, or nobody could log in."""
    try:
        await hf.store.schema_version()
        app = hf.asgi()
        await app.state.web.authenticator.require_some_way_in(host)
        with _listen(host, port) as listening:
            await _serve(hf, app, listening, say)
    finally:
        await hf.aclose()


async def _serve(hf: Holdfast, app: Server, listening: socket.socket, say: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
        timeout_graceful_shutdown=max(1, round(hf.settings.grace)),
    )
    reaper = Reaper(hf.store, hf.settings)
    reaping = asyncio.create_task(reaper.run(), name="holdfast reaper")
    try:
        await _Uvicorn(config, app, lambda: say(f"Serving {address}")).serve([listening])
    finally:
        reaper.stop()
        await reaping


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The server cannot listen on {host} port {port}: {error}; choose others by --host and --port."
        ) from None
