"""A few threads that only read, each with a connection of its own: a long list never holds up a writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StorageUnavailable
from holdfast.forking import keep_for_parent
from holdfast.portal import others_wait_for_this_thread
from holdfast.store.sqlite.connection import REFUSALS, translated
from holdfast.store.sqlite.in_use import InUse
from holdfast.store.sqlite.session import NewSession, Session
from holdfast.thread_starts import Executor

T = TypeVar("T")
THREADS_MAX = 4


def _threads() -> Executor:
    return Executor(THREADS_MAX, thread_name_prefix="holdfast sqlite reader", initializer=others_wait_for_this_thread)


class Readers:
    def __init__(
        self, path: str, connect: Callable[[], sqlite3.Connection], new_session: NewSession, in_use: InUse | None = None
    ) -> None:
        self._path = path
        self._connect = connect
        self._new_session = new_session
        self._in_use = in_use or InUse()
        self._threads = _threads()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, operation: Callable[[Session], T]) -> T:
        if self._closed:
            raise StorageUnavailable(f"The store of {self._path} is closed; make a new one.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, operation)

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=True)
        self.close_connections()

    def close_connections(self) -> None:
        """While none is in use."""
        while self._idle:
            self._idle.pop().close()

    def reset_after_fork(self, in_use: InUse) -> None:
        keep_for_parent(self._threads, self._idle)
        self._threads = _threads()
        self._idle = []
        self._in_use = in_use

    def _read(self, operation: Callable[[Session], T]) -> T:
        with self._in_use.one():
            connection: sqlite3.Connection | None = None
            try:
                connection = self._idle_one() or self._connect()
                value = operation(self._new_session(connection))
            except REFUSALS as error:  # the next read opens the file anew, whatever was wrong with it
                if connection is not None:
                    connection.close()
                raise translated(error, self._path) from error
            except BaseException:
                if connection is not None:
                    self._idle.append(connection)
                raise
            self._idle.append(connection)
            return value

    def _idle_one(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
