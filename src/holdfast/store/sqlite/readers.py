"""A few threads that only read, each with a connection of its own: a long list never holds up a writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StorageUnavailable
from holdfast.store.sqlite.connection import REFUSALS, translated
from holdfast.store.sqlite.session import NewSession, Session
from holdfast.thread_starts import Executor

T = TypeVar("T")
THREADS_MAX = 4


class Readers:
    def __init__(self, path: str, connect: Callable[[], sqlite3.Connection], new_session: NewSession) -> None:
        self._path = path
        self._connect = connect
        self._new_session = new_session
        self._threads = Executor(THREADS_MAX, thread_name_prefix="holdfast sqlite reader")
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, operation: Callable[[Session], T]) -> T:
        if self._closed:
            raise StorageUnavailable(f"The store of {self._path} is closed; make a new one.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, operation)

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=True)
        while self._opened:
            self._opened.pop().close()

    def _read(self, operation: Callable[[Session], T]) -> T:
        try:
            return operation(self._new_session(self._connection()))
        except REFUSALS as error:
            self._drop()
            raise translated(error, self._path) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._connect()
            self._opened.append(connection)
        return connection

    def _drop(self) -> None:
        """The next read opens the file anew, whatever was wrong with it."""
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is not None:
            self._mine.connection = None
            self._opened.remove(connection)
            connection.close()
