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
from holdfast.processes.reaper import Reaper, ended
from holdfast.processes.scheduler import Scheduler
from holdfast.processes.watchdog import watched
from holdfast.web.patience import Impatient
from holdfast.web.server import Server

LOOPBACK = "127.0.0.1"
PORT = 8080
TRUSTED_PROXIES = "127.0.0.1,::1"
BACKLOG = 2048
IDLE_CONNECTION_SECONDS = 75
"""Longer than the proxies in front keep theirs, so that they do not send into a connection that is just being closed."""


class _Uvicorn(uvicorn.Server):
    """Says where it listens, and tells open streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, app: Server, listens: Callable[[], None], supervised: bool) -> None:
        super().__init__(config)
        self._app = app
        self._listens = listens
        self._supervised = supervised

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listens()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """By the loop: uvicorn's own way raises them again at its end, and the process would die of what it has just obeyed."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, (lambda: None) if self._supervised else self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """A second signal does not wait for what is under way."""
        self._app.state.web.stopping.set()
        self.force_exit, self.should_exit = self.should_exit, True


async def serve(
    hf: Holdfast, host: str, port: int, say: Callable[[str], None], *, trusted_proxies: str = TRUSTED_PROXIES
) -> None:
    """Until a signal comes. Refuses before it listens where it could not work, or nobody could log in."""
    async with watched(hf.settings.watchdog):
        await _serve_and_close(hf, host, port, say, trusted_proxies)


async def _serve_and_close(hf: Holdfast, host: str, port: int, say: Callable[[str], None], trusted_proxies: str) -> None:
    try:
        await hf.store.schema_version()
        app = hf.asgi()
        await app.state.web.authenticator.require_some_way_in(host)
        with _listen(host, port) as listening:
            await _serve_beside_reaper(hf, app, listening, say, trusted_proxies)
    finally:
        await hf.aclose()


async def serve_for_development(hf: Holdfast, port: int | None, say: Callable[[str], None]) -> None:
    """On this machine only, beside a reaper, under a supervisor that passes Ctrl+C on as SIGTERM. Without a port: the usual
    one, or any that is free."""
    try:
        app = hf.asgi()
        authenticator = app.state.web.authenticator
        await authenticator.require_some_way_in(LOOPBACK, dev=True)
        if not await authenticator.has_some_way_in():
            say("There is no key for the HTTP API yet: `holdfast keys create --service` makes one.")
        with _listen_where_free() if port is None else _listen(LOOPBACK, port) as listening:
            link = await authenticator.one_time_link(_address(listening))

            def say_both(where: str) -> None:
                say(where)
                say(f"Dashboard, logs you in once within ten minutes: {link}")

            async with watched(hf.settings.watchdog):
                await _serve(hf, app, listening, say_both, supervised=True)
    finally:
        await hf.aclose()


async def _serve_beside_reaper(
    hf: Holdfast, app: Server, listening: socket.socket, say: Callable[[str], None], trusted_proxies: str
) -> None:
    reaper, scheduler = Reaper(hf.store, hf.settings, start_machines=hf.machines.recover), Scheduler(hf)
    reaping = asyncio.create_task(reaper.run(), name="holdfast reaper")
    keeping = asyncio.create_task(scheduler.run_listening(), name="holdfast scheduler")
    try:
        async with hf.machines.running():
            await _serve(hf, app, listening, say, trusted_proxies=trusted_proxies)
    finally:
        reaper.stop()
        scheduler.stop()
        await ended(reaping, keeping)


async def _serve(
    hf: Holdfast,
    app: Server,
    listening: socket.socket,
    say: Callable[[str], None],
    *,
    supervised: bool = False,
    trusted_proxies: str = TRUSTED_PROXIES,
) -> None:
    address = _address(listening)
    config = uvicorn.Config(
        app,
        http=Impatient,
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=trusted_proxies,
        lifespan="off",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
        timeout_graceful_shutdown=max(1, round(hf.settings.grace)),
    )
    await _Uvicorn(config, app, lambda: say(f"Serving {address}"), supervised).serve([listening])


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _listen_where_free() -> socket.socket:
    try:
        return _listen(LOOPBACK, PORT)
    except ConfigError:
        return _listen(LOOPBACK, 0)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The server cannot listen on {host} port {port}: {error}; choose others by --host and --port."
        ) from None
