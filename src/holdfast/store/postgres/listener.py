"""Wake-ups by LISTEN. A lost connection costs latency, never a job: polling goes on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from holdfast.errors import HoldfastError
from holdfast.ids import new_run_id
from holdfast.store.postgres.connections import Connection, Connections, is_pooled
from holdfast.store.protocol import Wake

log = logging.getLogger("holdfast")

CHANNEL = "holdfast"
LOGS_CHANNEL = "holdfast_logs"
_RECONNECT_SECONDS = (0.2, 1.0, 5.0)
_ARRIVES_SECONDS = 2.0
_IN_VAIN_SECONDS = 60.0
_TEST = "listening:"
_TAKE_SESSION = "SELECT pg_try_advisory_lock_shared(hashtextextended($1, 7114))"
"""The number is that of worker_silence_v1."""
_ADVICE = "Set HOLDFAST_LISTEN_URL to an address that goes past it."


class Listener:
    def __init__(self, connections: Connections, wake: Wake, logs: bool, worker: str | None = None) -> None:
        self._connections = connections
        self._wake = wake
        self._channels = (CHANNEL, LOGS_CHANNEL) if logs else (CHANNEL,)
        self._lost = asyncio.Event()
        self._task = asyncio.create_task(self._keep_listening(), name="holdfast listener")
        self.first_try = asyncio.Event()
        self.connected = False
        self.worker = worker
        self.has_session = False
        """Whether the end of this connection proves, together with missed heartbeats, that the worker is dead. Stays while it
        reconnects."""
        self._test = f"{_TEST}{new_run_id()}"
        self._arrived = asyncio.Event()

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
                pooled = await is_pooled(connection)
                await self._take_session(connection, pooled)
                for channel in self._channels:
                    await connection.add_listener(channel, self._heard)
                if pooled and not await self._arrives():
                    self.first_try.set()
                    log.warning("Notifications do not pass the pooler: jobs start by polling. %s", _ADVICE)
                    await asyncio.sleep(_IN_VAIN_SECONDS)
                    return
            self.connected = True
            self.first_try.set()
            self._wake("")  # whatever happened while nobody listened
            await self._lost.wait()
        finally:
            connection.terminate()

    async def _take_session(self, connection: Connection, pooled: bool) -> None:
        """A lock that the server gives up with the connection. Shared, because the session before this one may still be open.
        Behind a pooler it would belong to a connection that outlives us, so none is taken."""
        if self.worker is not None:
            self.has_session = not pooled and await connection.fetchval(_TAKE_SESSION, self.worker)

    async def _arrives(self) -> bool:
        """Behind a transaction pooler LISTEN succeeds, but nothing ever comes: better to know, and to poll quickly."""
        self._arrived.clear()
        async with self._connections.acquire() as other:
            await other.fetchval("SELECT pg_notify($1, $2)", CHANNEL, self._test)
        try:
            async with asyncio.timeout(_ARRIVES_SECONDS):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _heard(self, _connection: Connection, _pid: int, _channel: str, payload: str) -> None:
        if payload.startswith(_TEST):
            if payload == self._test:
                self._arrived.set()
        else:
            self._wake(payload)
