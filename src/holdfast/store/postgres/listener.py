"""Wake-ups by LISTEN. A lost connection costs latency, never a job: polling goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.store.postgres.connections import Connections
from holdfast.store.protocol import Wake

CHANNEL = "holdfast"
LOGS_CHANNEL = "holdfast_logs"
_RECONNECT_SECONDS = (0.2, 1.0, 5.0)


class Listener:
    def __init__(self, connections: Connections, wake: Wake, logs: bool) -> None:
        self._connections = connections
        self._wake = wake
        self._channels = (CHANNEL, LOGS_CHANNEL) if logs else (CHANNEL,)
        self._lost = asyncio.Event()
        self._task = asyncio.create_task(self._keep_listening(), name="holdfast listener")
        self.first_try = asyncio.Event()
        self.connected = False

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _keep_listening(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen_until_lost()
                failures = 0
            except HoldfastError:
                failures += 1
            finally:
                self.connected = False
                self.first_try.set()
                self._wake("")  # who waits for hints must know that there are none now, and poll
            await asyncio.sleep(_RECONNECT_SECONDS[min(failures, len(_RECONNECT_SECONDS) - 1)])

    async def _listen_until_lost(self) -> None:
        self._lost.clear()
        connection = await self._connections.connect()
        try:
            connection.add_termination_listener(lambda _: self._lost.set())
            with self._connections.errors_translated():
                for channel in self._channels:
                    await connection.add_listener(channel, self._heard)
            self.connected = True
            self.first_try.set()
            self._wake("")  # whatever happened while nobody listened
            await self._lost.wait()
        finally:
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._wake(payload)
