"""Run one statement on the caller's own connection, whichever driver it belongs to.

Connections are told apart by the names of their classes, so that no driver is imported that the caller did not
import. What the driver raises passes through unchanged: the transaction is the caller's, and so are its errors.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Any, Literal

from holdfast.errors import InvalidOption
from holdfast.store.protocol import CallerStatement

Kind = Literal["postgres", "sqlite"]
Rows = list[Sequence[Any]]

_ACCEPTED = (
    "a psycopg 3, asyncpg, sqlite3 or aiosqlite connection, a SQLAlchemy Connection or Session (sync or async), "
    "django.db.connection, or what hf.transaction() gives"
)


@dataclasses.dataclass(frozen=True)
class Caller:
    """A connection of the caller's, ready to run a statement inside whatever transaction it is in."""

    kind: Kind
    is_async: bool
    _execute: Callable[[CallerStatement], Any] = dataclasses.field(repr=False)

    def run(self, statement: CallerStatement) -> Rows:
        """The rows the statement returns, in column order."""
        if self.is_async:
            raise InvalidOption("tx is an asynchronous connection, which a sync call cannot use: await the async call instead.")
        rows: Rows = self._execute(statement)
        return rows

    async def run_async(self, statement: CallerStatement) -> Rows:
        """The same from async code; a sync connection simply runs, on this thread, as its owner expects."""
        rows: Rows = await self._execute(statement) if self.is_async else self._execute(statement)
        return rows


def caller_of(tx: object) -> Caller:
    """Recognise what was given as `tx=`."""
    if getattr(tx, "store_kind", None) in ("postgres", "sqlite") and hasattr(tx, "fetch"):
        return _own_transaction(tx)
    # __class__, not type(): tracing libraries wrap connections in proxies that report the class of what they wrap.
    for cls in tx.__class__.__mro__:
        make = _CALLERS.get((cls.__module__.partition(".")[0], cls.__name__))
        if make is not None:
            return make(tx)
    raise InvalidOption(_refusal(tx))


def _refusal(tx: object) -> str:
    names = {(cls.__module__, cls.__name__) for cls in type(tx).__mro__}
    is_module = isinstance(tx, ModuleType) and tx.__name__ == "django.db.transaction"
    if is_module or ("django.db.transaction", "Atomic") in names:
        return "tx must be a connection: pass django.db.connection, inside `with transaction.atomic():`."
    return f"tx cannot be {type(tx).__module__}.{type(tx).__qualname__}: pass {_ACCEPTED}."


# -- how each paramstyle writes the one parameter --------------------------------------------------------------------

_PARAMETER = re.compile(r"\$1(?![0-9])")


def write_parameter(sql: str, kind: Kind, paramstyle: str) -> str:
    """The statement with its `$1` as the driver writes it."""
    if paramstyle in ("format", "pyformat"):
        sql, mark = sql.replace("%", "%%"), "%s"
    elif paramstyle in ("qmark", "numeric_dollar", "numeric"):
        mark = {"qmark": "?", "numeric_dollar": "$1", "numeric": ":1"}[paramstyle]
    else:
        raise InvalidOption(f"tx uses a driver with the paramstyle {paramstyle!r}, which is not supported: pass {_ACCEPTED}.")
    # The cast to text keeps a jsonb codec, which many programs set on their connections, from encoding the JSON again.
    mark = f"CAST({mark} AS text)" if kind == "postgres" else mark
    written, count = _PARAMETER.subn(lambda _: mark, sql)
    if count != 1:
        raise ValueError(f"a caller's statement has exactly one $1, this one has {count}")
    return written


# -- PostgreSQL drivers ----------------------------------------------------------------------------------------------


def _psycopg(tx: Any) -> Caller:
    # Made from the class itself: the connection's own factories may give dicts for rows, or want $1.
    psycopg: Any = sys.modules["psycopg"]

    def execute(statement: CallerStatement) -> Rows:
        with psycopg.Cursor(tx, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(write_parameter(statement.sql, "postgres", "format"), (statement.parameter,))
            return list(cursor.fetchall())

    return Caller("postgres", False, execute)


def _psycopg_async(tx: Any) -> Caller:
    psycopg: Any = sys.modules["psycopg"]

    async def execute(statement: CallerStatement) -> Rows:
        async with psycopg.AsyncCursor(tx, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(write_parameter(statement.sql, "postgres", "format"), (statement.parameter,))
            return list(await cursor.fetchall())

    return Caller("postgres", True, execute)


def _asyncpg(tx: Any) -> Caller:
    async def execute(statement: CallerStatement) -> Rows:
        rows = await tx.fetch(write_parameter(statement.sql, "postgres", "numeric_dollar"), statement.parameter)
        return [tuple(row.values()) for row in rows]

    return Caller("postgres", True, execute)


# -- SQLite drivers --------------------------------------------------------------------------------------------------


def _begins_by_itself(connection: Any) -> bool:
    """Whether this connection's owner counts on an open transaction that is not there yet.

    Python's sqlite3 opens one before INSERT, UPDATE and DELETE, but not before WITH … INSERT: without an explicit
    BEGIN the job would be there at once, and would outlive the caller's rollback.
    """
    legacy = getattr(connection, "autocommit", -1) == -1
    return legacy and connection.isolation_level is not None and not connection.in_transaction


def _sqlite3(tx: Any) -> Caller:
    def execute(statement: CallerStatement) -> Rows:
        cursor = tx.cursor()
        cursor.row_factory = None
        if _begins_by_itself(tx):
            cursor.execute(f"BEGIN {tx.isolation_level}")
        cursor.execute(write_parameter(statement.sql, "sqlite", "qmark"), (statement.parameter,))
        rows: Rows = cursor.fetchall()
        cursor.close()
        return rows

    return Caller("sqlite", False, execute)


def _aiosqlite(tx: Any) -> Caller:
    async def execute(statement: CallerStatement) -> Rows:
        cursor = await tx.cursor()
        cursor.row_factory = None
        if _begins_by_itself(tx):
            await cursor.execute(f"BEGIN {tx.isolation_level}")
        await cursor.execute(write_parameter(statement.sql, "sqlite", "qmark"), (statement.parameter,))
        rows = list(await cursor.fetchall())
        await cursor.close()
        return rows

    return Caller("sqlite", True, execute)


# -- SQLAlchemy ------------------------------------------------------------------------------------------------------


def _kind_of(name: str) -> Kind:
    if name == "postgresql":
        return "postgres"
    if name == "sqlite":
        return "sqlite"
    raise InvalidOption(f"tx is connected to {name}, and jobs live in PostgreSQL or SQLite: pass {_ACCEPTED}.")


def _sqlalchemy_execute(connection: Any, statement: CallerStatement) -> Rows:
    kind = _kind_of(connection.dialect.name)
    if kind == "sqlite" and _begins_by_itself(connection.connection.driver_connection):
        connection.exec_driver_sql("BEGIN")
    # Not text(): that would look for :names inside the statement's own literals and casts.
    sql = write_parameter(statement.sql, kind, connection.dialect.paramstyle)
    return [tuple(row) for row in connection.exec_driver_sql(sql, (statement.parameter,))]


def _sqlalchemy_connection(tx: Any) -> Caller:
    return Caller(_kind_of(tx.dialect.name), False, lambda statement: _sqlalchemy_execute(tx, statement))


def _sqlalchemy_session(tx: Any) -> Caller:
    kind = _kind_of(tx.get_bind().dialect.name)
    return Caller(kind, False, lambda statement: _sqlalchemy_execute(tx.connection(), statement))


def _sqlalchemy_async_connection(tx: Any) -> Caller:
    def execute(statement: CallerStatement) -> Awaitable[Rows]:
        rows: Awaitable[Rows] = tx.run_sync(_sqlalchemy_execute, statement)
        return rows

    return Caller(_kind_of(tx.dialect.name), True, execute)


def _sqlalchemy_async_session(tx: Any) -> Caller:
    def execute(statement: CallerStatement) -> Awaitable[Rows]:
        rows: Awaitable[Rows] = tx.run_sync(lambda session: _sqlalchemy_execute(session.connection(), statement))
        return rows

    return Caller(_kind_of(tx.get_bind().dialect.name), True, execute)


# -- Django, and our own ---------------------------------------------------------------------------------------------


def _django(tx: Any) -> Caller:
    kind = _kind_of(tx.vendor)

    def execute(statement: CallerStatement) -> Rows:
        with tx.cursor() as cursor:
            if kind == "sqlite" and _begins_by_itself(tx.connection):
                cursor.execute("BEGIN")
            cursor.execute(write_parameter(statement.sql, kind, "format"), [statement.parameter])
            return list(cursor.fetchall())

    return Caller(kind, False, execute)


def _own_transaction(tx: Any) -> Caller:
    async def execute(statement: CallerStatement) -> Rows:
        return [tuple(row.values()) for row in await tx.fetch(statement.sql, statement.parameter)]

    return Caller(tx.store_kind, True, execute)


_CALLERS: dict[tuple[str, str], Callable[[Any], Caller]] = {
    ("psycopg", "Connection"): _psycopg,
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("psycopg", "Cursor"): lambda cursor: _psycopg(cursor.connection),
    ("psycopg", "AsyncCursor"): lambda cursor: _psycopg_async(cursor.connection),
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("sqlite3", "Connection"): _sqlite3,
    ("sqlite3", "Cursor"): lambda cursor: _sqlite3(cursor.connection),
    ("aiosqlite", "Connection"): _aiosqlite,
    ("sqlalchemy", "Connection"): _sqlalchemy_connection,
    ("sqlalchemy", "Session"): _sqlalchemy_session,
    ("sqlalchemy", "scoped_session"): lambda scoped: _sqlalchemy_session(scoped()),
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async_connection,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async_session,
    ("sqlalchemy", "async_scoped_session"): lambda scoped: _sqlalchemy_async_session(scoped()),
    ("django", "BaseDatabaseWrapper"): _django,
    ("django", "ConnectionProxy"): _django,
}
