"""The one thread of this process that writes to the file. What is waiting is committed together, in one fsync.

Each operation has a savepoint of its own, so that one that fails takes nothing of its neighbours with it; nobody is
answered before the commit.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, StorageUnavailable
from holdfast.forking import keep_for_parent
from holdfast.portal import others_wait_for_this_thread
from holdfast.store.sqlite.connection import MEMORY, REFUSALS, translated
from holdfast.store.sqlite.in_use import InUse
from holdfast.store.sqlite.session import NewSession, Session
from holdfast.thread_starts import start

log = logging.getLogger("holdfast")

T = TypeVar("T")
Operation = Callable[[Session], T]

OPERATIONS_PER_COMMIT_MAX = 500
WATCH_SECONDS = 0.05
WATCH_BUSY_SECONDS = 0.005
"""How often to look for commits of others: seldom while nothing happens, often for a second after something did."""


class Ticket:
    """An operation on its way, and whom to tell. Its future belongs to the loop that asked."""

    def __init__(self, operation: Operation[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.operation = operation
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class Writer:
    def __init__(
        self,
        path: str,
        connect: Callable[[], sqlite3.Connection],
        new_session: NewSession,
        wake: Callable[[set[str]], None],
        in_use: InUse | None = None,
    ) -> None:
        self.watching = False
        """Whether commits of others (another process, a caller's own connection) are to be noticed."""
        self._path = path
        self._connect = connect
        self._new_session = new_session
        self._wake = wake
        self._in_use = in_use or InUse()
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._data_version: int | None = None
        self._busy_until = 0.0
        self._batch: list[Ticket] = []

    async def run(self, operation: Operation[T]) -> T:
        ticket = Ticket(operation, asyncio.get_running_loop())
        with self._lock:
            if self._closed:
                raise StorageUnavailable(f"The store of {self._path} is closed; make a new one.")
            self._start()
            self._queue.put(ticket)
        value: T = await ticket.future
        return value

    def watch(self, watching: bool) -> None:
        with self._lock:
            self.watching = watching
            if watching and not self._closed:
                self._start()
                self._queue.put(None)  # so that a thread that waits without end notices

    def close(self) -> None:
        """Finishes what is queued. Blocks until it is done."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def close_connection(self) -> None:
        """While it is not in use."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._data_version = None, None

    def reset_after_fork(self, in_use: InUse) -> None:
        """The thread and its callers are in the parent. A database in memory is copied with the process."""
        if self._path != MEMORY:
            keep_for_parent(self._connection)
            self._connection, self._data_version = None, None
        keep_for_parent(self._queue, self._batch)
        self._queue, self._batch = queue.SimpleQueue(), []
        self._lock, self._thread, self.watching = threading.Lock(), None, False
        self._in_use = in_use

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast sqlite writer", daemon=True)
            start(self._thread)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        others_wait_for_this_thread()
        try:
            self._work_until_closed()
        except BaseException as error:
            log.critical("The writer thread of %s ended: %r. The next operation starts another one.", self._path, error)
            self._end_early(error)
        else:
            self.close_connection()

    def _work_until_closed(self) -> None:
        while not (self._closed and self._queue.empty()):
            self._batch = self._next_batch()
            if self._batch:
                with self._in_use.one():
                    self._commit(self._batch)
                self._batch = []
            if self.watching and self._path != MEMORY:
                self._notice_commits_of_others()

    def _end_early(self, error: BaseException) -> None:
        """Fail the callers of this thread, which would wait forever."""
        with suppress(*REFUSALS):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.rollback()
        if self._path != MEMORY:
            with suppress(*REFUSALS):
                self.close_connection()
        with self._lock:
            waiting, self._batch = self._batch, []
            while not self._queue.empty():
                ticket = self._queue.get()
                waiting += [ticket] if ticket is not None else []
            self._thread = None  # from here on another thread may write
        failure = StorageUnavailable(
            f"The writer thread of {self._path} ended ({error!r}); whether this operation took effect is unknown."
        )
        failure.__cause__ = error
        for ticket in waiting:
            ticket.error = ticket.error or failure
        self._settle(waiting)

    def _next_batch(self) -> list[Ticket]:
        batch: list[Ticket] = []
        with suppress(queue.Empty):
            first = self._queue.get(timeout=self._watch_seconds() if self.watching else None)
            batch += [first] if first is not None else []
            while len(batch) < OPERATIONS_PER_COMMIT_MAX:
                ticket = self._queue.get_nowait()
                batch += [ticket] if ticket is not None else []
        return [ticket for ticket in batch if not ticket.future.cancelled()]

    def _commit(self, batch: list[Ticket]) -> None:
        wakes: set[str] = set()
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            for ticket in batch:
                wakes |= self._attempt(ticket, connection)
            connection.execute("COMMIT")
        except (*REFUSALS, HoldfastError) as error:
            wakes = set()
            self._fail_all(batch, translated(error, self._path) if isinstance(error, REFUSALS) else error)
        if wakes:
            self._wake(wakes)
        self._settle(batch)

    def _attempt(self, ticket: Ticket, connection: sqlite3.Connection) -> set[str]:
        session = self._new_session(connection)
        connection.execute("SAVEPOINT operation")
        try:
            ticket.value = ticket.operation(session)
        except Exception as error:
            if not connection.in_transaction:
                raise  # a full disk, for one, rolls back everything, the neighbours' work too
            connection.execute("ROLLBACK TO operation")
            session.wakes.clear()
            ticket.error = translated(error, self._path) if isinstance(error, REFUSALS) else error
        connection.execute("RELEASE operation")
        return session.wakes

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _fail_all(self, batch: list[Ticket], error: BaseException) -> None:
        for ticket in batch:
            ticket.error = ticket.error or error
        if self._connection is None:
            return
        with suppress(*REFUSALS):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if self._path != MEMORY:  # whatever it was, a new connection finds out whether it is over
            self.close_connection()

    def _settle(self, batch: list[Ticket]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        for ticket in batch:
            by_loop.setdefault(ticket.loop, []).append(ticket)
        for loop, tickets in by_loop.items():
            with suppress(RuntimeError):  # that loop has ended; nobody is waiting there any more
                loop.call_soon_threadsafe(_settle_all, tickets)

    def _notice_commits_of_others(self) -> None:
        """The writer's own commits do not change its connection's data version, so what changes it came from outside."""
        try:
            with self._in_use.one():
                (version,) = self._open().execute("PRAGMA data_version").fetchone()
        except (*REFUSALS, HoldfastError):
            return  # not there yet, or away: polling goes on meanwhile
        if version != self._data_version:
            self._data_version = version
            self._wake({""})  # the first look, too: who knows what was committed before it
            self._busy_until = time.monotonic() + 1.0

    def _watch_seconds(self) -> float:
        return WATCH_BUSY_SECONDS if time.monotonic() < self._busy_until else WATCH_SECONDS


def _settle_all(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.settle()
