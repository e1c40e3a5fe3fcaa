"""One small pool per event loop, and every driver error turned into ours.

Behind a transaction pooler (PgBouncer, Supavisor) two things differ, and it is found out whether there is one: no prepared
statement outlives its transaction, so nothing is cached and each statement gets a transaction of its own around it, which keeps
its parts on one connection; and the session's settings cannot be chosen.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from holdfast.errors import ConfigError, NotMigrated, StorageError, StorageUnavailable
from holdfast.forking import keep_for_parent, reset_after_fork

Connection = Any
"""An asyncpg connection, or the proxy that a pool hands out."""

_TRANSIENT = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_AWAY = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)
_SESSION = {
    "application_name": "holdfast",
    # Whatever the database's default is: a limit is counted after its lock was taken, and must see what was committed last.
    "default_transaction_isolation": "read committed",
}
_OF_A_POOLER = (
    asyncpg.ProtocolViolationError,  # a setting that it does not pass on
    asyncpg.InvalidSQLStatementNameError,  # prepared on another connection
    asyncpg.DuplicatePreparedStatementError,  # by another client
)
_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
ANSWER_SECONDS = 10.0
"""For the short statements that a worker lives by. Nobody is told when a connection has gone silent: who is not answered takes
another one, and has to know what it means that the statement may have been executed all the same."""
_LET_GO_SECONDS = 1.0


async def _leave_as_it_is(_connection: Connection) -> None:
    """In place of asyncpg's reset, which would cost a round trip after every statement. We change no session state."""


async def _learn_arrays(connection: Connection) -> None:
    """asyncpg asks the server about array types when it first meets them, by a query that a search_path can mislead."""
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        await connection.prepare("SELECT $1::text[], $2::uuid[], $3::integer[], $4::bigint[], $5::double precision[]", name="")


class Connections:
    """Pools by event loop: a worker's heart beats on a loop of its own, sync callers on yet another."""

    def __init__(self, url: str, shown: str, listen_url: str | None = None) -> None:
        self.url = url
        self.shown = shown
        self.listen_url = listen_url or url
        self.pooled: bool | None = None
        """Whether a pooler stands between us and the database; None until somebody has connected."""
        self._pools: dict[asyncio.AbstractEventLoop, tuple[asyncpg.Pool[Any], bool]] = {}
        self._finding_out: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._letting_go: set[asyncio.Task[None]] = set()
        self._own: set[Connection] = set()
        """Outside of the pools."""
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        """The sessions are the parent's. Nothing may be said on their sockets here, no farewell either."""
        for pool, _ in self._pools.values():
            for holder in pool._holders:
                _let_go_of_socket(holder._con)
        for connection in self._own:
            _let_go_of_socket(connection)
        keep_for_parent(self._pools, self._finding_out, self._letting_go, self._own)
        self._pools, self._finding_out = {}, weakref.WeakKeyDictionary()
        self._letting_go, self._own = set(), set()

    def _pool(self) -> asyncpg.Pool[Any]:
        loop = asyncio.get_running_loop()
        pool, made_for_pooler = self._pools.get(loop, (None, False))
        if pool is not None and bool(self.pooled) != made_for_pooler:  # it was found out meanwhile
            pool.terminate()
            pool = None
        if pool is None:
            self._forget_closed_loops()
            pool = asyncpg.create_pool(
                self.url,
                min_size=0,
                max_size=8,
                reset=_leave_as_it_is,
                init=_learn_arrays,
                timeout=_CONNECT_SECONDS,
                command_timeout=_COMMAND_SECONDS,
                **({"statement_cache_size": 0} if self.pooled else {"server_settings": _SESSION}),
            )
            self._pools[loop] = pool, bool(self.pooled)
        return pool

    def _forget_closed_loops(self) -> None:
        """A program may call asyncio.run() again and again without closing us: each loop would leave a pool behind."""
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            with suppress(RuntimeError):  # its connections die with their sockets, the loop can no longer help
                self._pools.pop(loop)[0].terminate()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection from the pool. What the body raises is passed on as it is: it may be the user's own error."""
        with self.errors_translated():
            pool, connection = await self._acquired()
        unanswered = False
        try:
            if self.pooled:
                async with self._in_transaction(connection):
                    yield connection
            else:
                yield connection
        except (asyncio.CancelledError, StorageUnavailable, *_AWAY):
            unanswered = True
            raise
        finally:
            if unanswered:  # whoever gave it up must not wait for a connection that may never answer again
                task = asyncio.get_running_loop().create_task(self._let_go(pool, connection))
                self._letting_go.add(task)
                task.add_done_callback(self._letting_go.discard)
            else:
                with suppress(*_AWAY):
                    await pool.release(connection)

    async def _let_go(self, pool: asyncpg.Pool[Any], connection: Connection) -> None:
        """A statement that was given up is cancelled at the server, by another connection. If the server confirms that at once,
        this one can be used again; otherwise it is torn down."""
        with suppress(*_AWAY):
            await pool.release(connection, timeout=_LET_GO_SECONDS)

    async def _acquired(self) -> tuple[asyncpg.Pool[Any], Connection]:
        if self.pooled is None:
            # One finds out, the others of this loop wait: a pool of the wrong kind is of no use to anybody.
            async with self._finding_out.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if self.pooled is None:
                    self.pooled = await self._find_pooler()
        pool = self._pool()
        await pool  # opens it the first time
        return pool, await pool.acquire()

    async def _find_pooler(self) -> bool:
        pool = self._pool()
        try:
            await pool
            async with pool.acquire() as connection:
                return await is_pooled(connection)
        except _OF_A_POOLER:
            return True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Committed when the body ends, rolled back when it raises; the body's own error is passed on as it is."""
        async with self.acquire() as connection, self._in_transaction(connection):
            yield connection

    @asynccontextmanager
    async def _in_transaction(self, connection: Connection) -> AsyncIterator[None]:
        transaction = connection.transaction(isolation="read_committed")  # behind a pooler the database's default counts
        with self.errors_translated():
            await transaction.start()
        try:
            yield
        except BaseException:
            try:
                async with asyncio.timeout(_LET_GO_SECONDS):
                    await transaction.rollback()
            except TimeoutError:
                connection.terminate()
            except _AWAY:
                pass  # a lost connection has rolled back by itself
            raise
        with self.errors_translated():
            await transaction.commit()

    async def connect(self) -> Connection:
        """A connection of one's own, outside the pool, for listening."""
        with self.errors_translated():
            connection: Connection = await asyncpg.connect(
                self.listen_url,
                timeout=_CONNECT_SECONDS,
                statement_cache_size=0,
                server_settings={"application_name": "holdfast listener"},
            )
        self._own.add(connection)
        connection.add_termination_listener(self._own.discard)
        return connection

    async def fetch(self, sql: str, *args: Any, patience: float | None = None) -> list[Any]:
        """One statement, committed by itself; asked again when it lost against another one and was rolled back."""
        for tries_left in (2, 1, 0):
            try:
                async with self.acquire() as connection:
                    with self.errors_translated():
                        rows: list[Any] = await connection.fetch(sql, *args, timeout=patience)
                    return rows
            except StorageError as error:
                if not tries_left or not isinstance(error.__cause__, _TRANSIENT):
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        pool, _ = self._pools.pop(asyncio.get_running_loop(), (None, False))
        if pool is not None:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await pool.close()
            except (*_AWAY, asyncpg.PostgresError):
                pool.terminate()

    def errors_translated(self) -> ErrorsTranslated:
        return ErrorsTranslated(self.shown)


def _let_go_of_socket(connection: Connection) -> None:
    """The number stays taken, by what leads nowhere: with the parent gone, this process must not keep its sessions alive, and a
    finalizer that closes this number, or takes it out of the loop's epoll, must hit nothing."""
    if connection is None or connection.is_closed():
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, connection._transport.get_extra_info("socket").fileno())
    os.close(nowhere)


async def is_pooled(connection: Connection) -> bool:
    """A pooler makes up the process id that it tells its clients: they get another server process for each transaction."""
    return bool(connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()"))


def breaks_constraint(error: StorageError, name: str) -> bool:
    return isinstance(error.__cause__, asyncpg.UniqueViolationError) and error.__cause__.constraint_name == name


class ErrorsTranslated:
    """Turns what asyncpg raises into the errors of Holdfast; the original stays as the cause."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)):
            raise StorageUnavailable(f"The database at {self._shown} refused the user or password; check the URL.") from error
        if isinstance(error, asyncpg.InvalidCatalogNameError):
            raise StorageUnavailable(
                f"There is no database at {self._shown}; create it or check its name in the URL."
            ) from error
        if isinstance(error, asyncpg.ClientConfigurationError):
            raise ConfigError(f"The database URL {self._shown} cannot be used: {error}") from error
        if isinstance(error, (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError)):
            raise NotMigrated(
                f"The database at {self._shown} lacks part of Holdfast's schema; run `holdfast migrate`."
            ) from error
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            raise StorageError(f"The database user may not do this: {error}") from error
        if isinstance(error, _AWAY):
            raise StorageUnavailable(
                f"The database at {self._shown} cannot be reached ({type(error).__name__}); "
                "check that it runs and that the URL is right."
            ) from error
        if isinstance(error, asyncpg.PostgresError):
            raise StorageError(f"The database refused a statement: {error}") from error
