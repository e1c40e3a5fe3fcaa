"""A transaction of ours that a caller writes through: plain SQL with $1, $2, …"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from holdfast.clock import DatabaseClock
from holdfast.errors import StorageUnavailable
from holdfast.portal import others_wait_for_this_thread
from holdfast.store import shared
from holdfast.store.sqlite.connection import BUSY_SECONDS, errors_translated, open_connection
from holdfast.store.sqlite.in_use import InUse
from holdfast.store.sqlite.session import Session, now_of
from holdfast.store.sqlite.writer import Writer
from holdfast.thread_starts import Executor

Work = Callable[[sqlite3.Connection], Any]
RunWork = Callable[[Work], Awaitable[Any]]


class SqliteTransaction:
    store_kind = "sqlite"

    def __init__(self, path: str, run_work: RunWork, clock: DatabaseClock) -> None:
        self._path = path
        self._run_work = run_work
        self._clock = clock

    async def execute(self, sql: str, *args: Any) -> None:
        await self.fetch(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        values = {str(number): value for number, value in enumerate(args, 1)}
        with errors_translated(self._path):
            found = await self._run_work(lambda connection: connection.execute(sql, values).fetchall())
        return [dict(row) for row in found]

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        values = shared.sqlite_values(args, now_of(self._clock))
        with errors_translated(self._path):
            found = await self._run_work(lambda connection: connection.execute(shared.SQLITE[statement], values).fetchall())
        return [shared.from_sqlite(row) for row in found]


@asynccontextmanager
async def on_own_connection(path: str, clock: DatabaseClock, in_use: InUse) -> AsyncIterator[SqliteTransaction]:
    """The connection has a thread of its own: a caller that is cancelled must not close it under a running statement."""
    loop = asyncio.get_running_loop()
    thread = Executor(1, thread_name_prefix="holdfast sqlite transaction", initializer=others_wait_for_this_thread)
    opened: list[sqlite3.Connection] = []
    counted: list[InUse] = []

    def begin() -> None:
        in_use.begin()
        counted.append(in_use)
        opened.append(open_connection(path))
        opened[0].execute("BEGIN IMMEDIATE")

    def run_work(work: Work) -> Awaitable[Any]:
        return loop.run_in_executor(thread, lambda: work(opened[0]))

    def close() -> None:
        for connection in opened:
            connection.close()  # which rolls back what is not committed
        for one in counted:
            one.end()

    try:
        with errors_translated(path):
            await loop.run_in_executor(thread, begin)
        yield SqliteTransaction(path, run_work, clock)
        with errors_translated(path):
            await run_work(lambda connection: connection.execute("COMMIT"))
    finally:
        closing = loop.run_in_executor(thread, close)
        thread.shutdown(wait=False)
        await asyncio.shield(closing)


class _RolledBack(Exception):
    """Makes the writer undo what the transaction did; it never reaches anybody."""


class _Requests:
    """What a transaction asks of the writer's thread, one request after the other, until `finish`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Future[Any]] | bool] = queue.SimpleQueue()

    def ask(self, work: Work) -> Future[Any]:
        answer: Future[Any] = Future()
        self._queue.put((work, answer))
        return answer

    def finish(self, *, commit: bool) -> None:
        self._queue.put(commit)

    def serve(self, session: Session) -> None:
        while True:
            try:
                request = self._queue.get(timeout=BUSY_SECONDS)
            except queue.Empty:
                raise StorageUnavailable("A transaction on the database in memory did nothing for 10 seconds.") from None
            if request is True:
                return
            if request is False:
                raise _RolledBack
            work, answer = request
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(work(session.connection))
            except sqlite3.Error as error:
                answer.set_exception(error)


@asynccontextmanager
async def on_writers_connection(path: str, writer: Writer, clock: DatabaseClock) -> AsyncIterator[SqliteTransaction]:
    """For a database in memory, which has one connection only: the writer serves this transaction until its end."""
    requests = _Requests()
    serving = asyncio.ensure_future(writer.run(requests.serve))

    async def run_work(work: Work) -> Any:
        answer = asyncio.wrap_future(requests.ask(work))
        await asyncio.wait({answer, serving}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            await serving  # which failed: nobody will answer
        return await answer

    try:
        yield SqliteTransaction(path, run_work, clock)
    except BaseException:
        requests.finish(commit=False)
        await asyncio.gather(serving, return_exceptions=True)
        raise
    requests.finish(commit=True)
    await serving
