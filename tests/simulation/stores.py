"""The real stores, inside a simulated loop.

On SQLite the store's own code runs inside the loop, each transaction at a moment of the scheduler's choice; on PostgreSQL each
statement is carried out on a real loop while the simulation stands still, and a transaction of several may stay open while
others have their turn.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

import asyncpg

from holdfast.clock import DatabaseClock
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.store.postgres.store import PostgresStore, PostgresTransaction
from holdfast.store.protocol import Store
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.connection import MEMORY, open_connection
from holdfast.store.sqlite.session import NewSession, Session
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.transaction import SqliteTransaction
from holdfast.store.sqlite.writer import Ticket, Writer
from tests.simulation.loop import Process
from tests.simulation.patches import BEGINNING, real_time

T = TypeVar("T")
TellWakes = Callable[[set[str]], None]
Rows = list[tuple[Any, ...]]


class Call(NamedTuple):
    """A verb on its way, for whoever watches what it does."""

    process: Process
    verb: str
    args: tuple[Any, ...]
    options: dict[str, Any]


current_call: ContextVar[Call | None] = ContextVar("simulated_call", default=None)


class Watcher(Protocol):
    """Looks at the tables after everything that was committed."""

    def committed(self, call: Call | None) -> None: ...


class Base(Protocol):
    """One database, and how the watcher looks at it."""

    kind: str

    def open(self, watcher: Watcher, wake: TellWakes) -> Store: ...
    def hang_up(self, process: Process) -> None:
        """It is dead, and so are its connections."""

    def look(self, sql: str) -> Rows: ...
    def close(self) -> None: ...


# -- SQLite ------------------------------------------------------------------------------------------------------------


class InlineWriter(Writer):
    """Commits in the loop instead of a thread, alone, after others had their chance to come first."""

    def __init__(self, connection: sqlite3.Connection, session: NewSession, watcher: Watcher, wake: TellWakes) -> None:
        super().__init__(MEMORY, lambda: connection, session, wake)
        self._watcher = watcher

    async def run(self, operation: Callable[[Session], T]) -> T:
        await asyncio.sleep(0)
        ticket = Ticket(operation, asyncio.get_running_loop())
        before = self._open().total_changes
        self._commit([ticket])
        if self._open().total_changes != before:
            self._watcher.committed(current_call.get())
        value: T = await ticket.future
        return value

    def watch(self, watching: bool) -> None:
        """The network tells of commits."""


class InlineStore(SqliteStore):
    def __init__(self, connection: sqlite3.Connection, clock: DatabaseClock, watcher: Watcher, wake: TellWakes) -> None:
        super().__init__(MEMORY, clock=clock)
        self._writer = InlineWriter(connection, self._new_session, watcher, wake)
        self._connection = connection
        self._watcher = watcher
        self._told = wake
        self._checked = True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """Between its statements nobody else has a turn: SQLite has one writer."""

        async def run_work(work: Callable[[sqlite3.Connection], Any]) -> Any:
            return work(self._connection)

        await asyncio.sleep(0)
        call = current_call.get()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield SqliteTransaction(MEMORY, run_work, self._clock)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        self._watcher.committed(call)
        self._told({""})

    async def _look(self, operation: Callable[[Session], T]) -> T:
        await asyncio.sleep(0)
        return operation(self._new_session(self._connection))


class SqliteBase:
    kind = "sqlite"
    _template: bytes | None = None

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock
        self._connection = open_connection(MEMORY)
        if SqliteBase._template is None:
            self._connection.execute("BEGIN IMMEDIATE")
            migrate.migrate(Session(self._connection, BEGINNING.timestamp()), MEMORY)
            self._connection.execute("COMMIT")
            SqliteBase._template = self._connection.serialize()
        else:
            self._connection.deserialize(SqliteBase._template)
        self._looking = self._connection.cursor()
        self._looking.row_factory = None

    def open(self, watcher: Watcher, wake: TellWakes) -> Store:
        return InlineStore(self._connection, self._clock, watcher, wake)

    def hang_up(self, process: Process) -> None:
        """Nobody dies inside a transaction: they have their turn to its end."""

    def look(self, sql: str) -> Rows:
        return self._looking.execute(sql).fetchall()

    def close(self) -> None:
        self._connection.close()


UNWATCHED = {
    "worker_save",
    "worker_seen",
    "worker_remove",
    "worker_list",
    "tally_add",
    "step_get",
    "lease_list",
    "tenant_depths",
}
"""What touches no job; each look at PostgreSQL is a round trip."""
TELLING = {"job_insert_many", "job_leave_if_leased", "job_cancel", "job_retry_if_ended", "job_reap", "tenant_set", "queue_set"}
"""What others are told of."""


def needs_no_database(verb: str) -> bool:
    """What only prepares a statement for somebody else's connection, or reads its answer."""
    return verb.endswith("_statement") or verb == "inserted_from_rows"


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


class OpenTransaction(NamedTuple):
    process: Process
    transaction: PostgresTransaction
    manager: AbstractAsyncContextManager[Any]


class PostgresBase:
    """One statement at a time, on a real loop: the simulation waits for the answer and no virtual time passes.

    Nobody waits for a lock in real time, since its holder could never go on: the statement is given up and tried again
    when others had their turn.
    """

    kind = "postgres"

    def __init__(self, clock: DatabaseClock, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._store = PostgresStore(url, clock=clock)
        self._open: list[OpenTransaction] = []
        self.wait_for(self._never_wait_for_locks(url))

    async def _never_wait_for_locks(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        name = await connection.fetchval("SELECT quote_ident(current_database())")
        await connection.execute(f"ALTER DATABASE {name} SET lock_timeout = '5ms'")
        await connection.close()

    def open(self, watcher: Watcher, wake: TellWakes) -> Store:
        store: Any = StatementByStatement(self, self._store, watcher, wake)
        opened: Store = store
        return opened

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        simulated = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            with real_time():
                return self._loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(simulated)

    async def carried_out(self, statement: Callable[[], Coroutine[Any, Any, T]], *, tries: int | None = None) -> T:
        pause = 0.01
        while True:
            await asyncio.sleep(0)
            try:
                return self.wait_for(statement())
            except StorageError as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                tries = None if tries is None else tries - 1
                if tries == 0:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def begin(self, process: Process) -> OpenTransaction:
        manager = self._store.transaction()
        self._open.append(OpenTransaction(process, self.wait_for(manager.__aenter__()), manager))
        return self._open[-1]

    def end(self, opened: OpenTransaction, error: BaseException | None = None) -> None:
        """Committed, or rolled back for an error."""
        self._open.remove(opened)
        self.wait_for(_left(opened.manager, error))

    def hang_up(self, process: Process) -> None:
        for opened in [opened for opened in self._open if opened.process is process]:
            opened.transaction.connection.terminate()
            self.end(opened, StorageUnavailable("The process is gone (simulated)."))

    def look(self, sql: str) -> Rows:
        return [tuple(row) for row in self.wait_for(self._store._connections.fetch(sql))]

    def close(self) -> None:
        for opened in list(self._open):
            self.hang_up(opened.process)
        self.wait_for(self._store.close())
        self._loop.close()


async def _left(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    await manager.__aexit__(type(error) if error else None, error, None)


class StatementByStatement:
    name = "postgres"

    def __init__(self, base: PostgresBase, store: Any, watcher: Watcher, wake: TellWakes) -> None:
        self._base = base
        self._store = store
        self._watcher = watcher
        self._wake = wake

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if needs_no_database(verb):
            plain: Callable[..., Any] = getattr(self._store, verb)
            return plain

        async def carried_out(*args: Any, **options: Any) -> Any:
            answer = await self._base.carried_out(lambda: getattr(self._store, verb)(*args, **options))
            if verb not in UNWATCHED:
                self._watcher.committed(current_call.get())
            if verb in TELLING:
                self._wake({""})
            await asyncio.sleep(0)
            return answer

        return carried_out

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[GatedTransaction]:
        await asyncio.sleep(0)
        call = current_call.get()
        assert call is not None
        opened = self._base.begin(call.process)
        try:
            yield GatedTransaction(self._base, opened.transaction)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):  # of a dead process, when all is over
                self._base.end(opened, error)
            raise
        await asyncio.sleep(0)
        self._base.end(opened)
        self._watcher.committed(call)
        self._wake({""})


class GatedTransaction:
    """Between its statements others have their turn. One that waits for a lock too long is taken for one of a deadlock."""

    store_kind = "postgres"

    def __init__(self, base: PostgresBase, transaction: PostgresTransaction) -> None:
        self._base = base
        self._transaction = transaction

    async def execute(self, sql: str, *args: Any) -> None:
        await self._carried_out("execute", sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._carried_out("fetch", sql, *args)
        return found

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._carried_out("shared", statement, *args)
        return found

    async def _carried_out(self, how: str, *args: Any) -> Any:
        async def behind_a_savepoint() -> Any:
            async with self._transaction.connection.transaction():
                return await getattr(self._transaction, how)(*args)

        return await self._base.carried_out(behind_a_savepoint, tries=8)
