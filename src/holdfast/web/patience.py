"""Connections that say too little, or take too little: a request's head must be there within some seconds, and within some
kilobytes, and an answer must be read.

uvicorn itself waits for a head and for a reader for ever, and keeps a head of any length.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 20.0
HEAD_BYTES_MAX = 65_536
UNREAD_SECONDS = 60.0
"""Who takes nothing at all of what is ready for him for so long is not waited for: it lies in memory meanwhile."""


class Impatient(HttpToolsProtocol):
    """Hangs up on whoever has not said what he wants in time; what is under way is left to the gate."""

    _hanging_up: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _reading: asyncio.TimerHandle | None = None
    _unread_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        waited = self._hanging_up
        super().data_received(data)
        if waited is not None and waited is self._hanging_up:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.close()

    def on_message_begin(self) -> None:
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _watch_reader(self) -> None:
        """While writing is paused, nothing is added: what is left only becomes less, if he reads."""
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(UNREAD_SECONDS, self._hang_up_unless_read)

    def _hang_up_unless_read(self) -> None:
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._watch_reader()
        else:
            self.transport.abort()  # close would wait for him to read the rest

    def _stop_watching(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _wait(self) -> None:
        if self._hanging_up is None:
            self._head_bytes = 0
            self._hanging_up = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None
