"""A real server for browsers: uvicorn on a free port, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from holdfast import Holdfast
from holdfast.web.patience import Impatient
from tests.support.waiting import until_sync

T = TypeVar("T")
PATIENCE_SECONDS = 60.0


class Served:
    """`served.run(coroutine)` runs on the server's own loop, where its Holdfast object lives."""

    def __init__(
        self,
        database_url: str,
        around: Callable[[Holdfast, ASGIApp], ASGIApp] | None = None,
        *,
        joined: Callable[[Holdfast], Any] | None = None,
        **settings: Any,
    ) -> None:
        """`joined` lets an application join before the database is migrated; what it returns is `served.application`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served", daemon=True)
        self._thread.start()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self._database_url, self._settings, self._around = database_url, settings, around
        self._joined = joined
        self.application: Any = None
        self.hf: Holdfast = self.run(self._open())

    async def _open(self) -> Holdfast:
        hf = Holdfast(self._database_url, **self._settings)
        self.application = None if self._joined is None else self._joined(hf)
        await hf.migrate()
        self.app = hf.asgi()
        app = self._around(hf, self.app) if self._around else self.app
        config = uvicorn.Config(
            app, http=Impatient, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.ensure_future(self._server.serve([self._listening]))
        return hf

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Beside the test, until the server ends."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def work(self) -> None:
        """What is queued is done, here."""
        self.run(self.hf.run_worker(exit_when_idle=0.0))

    def key(self, tenant: str | None = "acme", role: str = "admin") -> str:
        made = self.run(self.hf.keys.create(tenant=None if role == "service" else tenant, role=role))
        return made.secret

    def streams(self) -> int:
        """How many are open now, whoever watches."""
        return sum(self.app.state.web.streams.values())

    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._server.server_state.connections)

    def close(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        until_sync(lambda: not self._loop.is_running())
        self._loop.close()

    async def _close(self) -> None:
        self.app.state.web.stopping.set()
        self._server.should_exit = True
        await self._serving
        await self.hf.aclose()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
