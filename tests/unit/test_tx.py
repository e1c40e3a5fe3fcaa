"""One statement on the caller's own connection: every driver that speaks SQLite, the paramstyles, the refusals."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiosqlite
import django
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction as django_transaction
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast.errors import InvalidOption
from holdfast.store.protocol import CallerStatement
from holdfast.tx import caller_of, write_parameter

# WITH before INSERT, and every character that some paramstyle could trip over.
INSERT = CallerStatement(
    sql="WITH new AS (SELECT value FROM json_each($1)) INSERT INTO t (a) SELECT value FROM new WHERE 5 % 3 = 2 "
    "RETURNING a, 'x %s :y ?z'",
    parameter="[1, 2]",
)
ROWS = [(1, "x %s :y ?z"), (2, "x %s :y ?z")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "caller.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a int)")
    connection.close()
    return path


@pytest.fixture
def count(file: Path) -> Callable[[], int]:
    def committed_rows() -> int:
        connection = sqlite3.connect(file)
        (found,) = connection.execute("SELECT count(*) FROM t").fetchone()
        connection.close()
        return int(found)

    return committed_rows


@pytest.fixture
def engine(file: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(file: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    yield engine
    await engine.dispose()


@pytest.fixture
def django_connections(file: Path) -> Iterator[ConnectionHandler]:
    if not django_settings.configured:
        django_settings.configure()
    django.setup()
    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}})
    yield handler
    handler.close_all()


@pytest.fixture(params=["sqlite3", "sqlite3 with rows as dicts", "Connection", "Session", "scoped_session", "django", "proxy"])
def sync_tx(request: pytest.FixtureRequest, file: Path) -> Iterator[Any]:
    """A sync connection to the file in the middle of its owner's transaction."""
    if request.param.startswith("sqlite3"):
        connection = sqlite3.connect(file)
        if "dicts" in request.param:
            connection.row_factory = lambda cursor, row: {"row": row}
        yield connection
        connection.close()
    elif request.param in ("django", "proxy"):
        handler = request.getfixturevalue("django_connections")
        tx = handler["default"] if request.param == "django" else ConnectionProxy(handler, "default")
        tx.set_autocommit(False)
        yield tx
    else:
        engine = request.getfixturevalue("engine")
        scoped = scoped_session(sessionmaker(engine))
        tx = {"Connection": engine.connect, "Session": lambda: Session(engine), "scoped_session": lambda: scoped}[
            request.param
        ]()
        yield tx
        tx.close()


@pytest.fixture(params=["aiosqlite", "AsyncConnection", "AsyncSession", "async_scoped_session"])
async def async_tx(request: pytest.FixtureRequest, file: Path, async_engine: AsyncEngine) -> AsyncIterator[Any]:
    """The same for the async ones."""
    if request.param == "aiosqlite":
        async with aiosqlite.connect(file) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
    elif request.param == "AsyncConnection":
        async with async_engine.connect() as connection:
            yield connection
    elif request.param == "AsyncSession":
        async with AsyncSession(async_engine) as session:
            yield session
    else:
        scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: "one")
        yield scoped
        await scoped.remove()


def test_a_sync_statement_returns_its_rows_in_column_order(sync_tx: Any) -> None:
    """Rows come as plain tuples, whatever row factory or literals the caller and the statement have."""
    caller = caller_of(sync_tx)
    rows = [tuple(row) for row in caller.run(INSERT)]
    assert ((caller.kind, caller.is_async), rows) == (("sqlite", False), ROWS)


def test_a_sync_statement_commits_with_the_caller(sync_tx: Any, count: Callable[[], int]) -> None:
    """Nobody sees the rows before the caller's commit, everybody after it."""
    caller_of(sync_tx).run(INSERT)
    before = count()
    sync_tx.commit()
    assert (before, count()) == (0, 2)


def test_a_sync_statement_goes_with_the_callers_rollback(sync_tx: Any, count: Callable[[], int]) -> None:
    """As the first statement of the transaction too, where Python's sqlite3 opens none by itself before WITH."""
    caller_of(sync_tx).run(INSERT)
    sync_tx.rollback()
    sync_tx.commit()
    assert count() == 0


@pytest.mark.parametrize("sync_tx", ["sqlite3", "Connection", "Session", "scoped_session"], indirect=True)
async def test_a_sync_connection_can_be_used_from_async_code(sync_tx: Any) -> None:
    """run_async is for every caller."""
    assert [tuple(row) for row in await caller_of(sync_tx).run_async(INSERT)] == ROWS


async def test_djangos_refusal_to_run_inside_a_loop_passes_through(django_connections: ConnectionHandler) -> None:
    """It is Django's own rule, and its message says what to do."""
    with pytest.raises(SynchronousOnlyOperation):
        await caller_of(django_connections["default"]).run_async(INSERT)


async def test_an_async_statement_returns_its_rows_in_column_order(async_tx: Any) -> None:
    """Rows come as plain tuples from every async driver."""
    caller = caller_of(async_tx)
    rows = [tuple(row) for row in await caller.run_async(INSERT)]
    assert ((caller.kind, caller.is_async), rows) == (("sqlite", True), ROWS)


async def test_an_async_statement_commits_with_the_caller(async_tx: Any, count: Callable[[], int]) -> None:
    """Nobody sees the rows before the caller's commit, everybody after it."""
    await caller_of(async_tx).run_async(INSERT)
    before = count()
    await async_tx.commit()
    assert (before, count()) == (0, 2)


async def test_an_async_statement_goes_with_the_callers_rollback(async_tx: Any, count: Callable[[], int]) -> None:
    """As the first statement of the transaction too."""
    await caller_of(async_tx).run_async(INSERT)
    await async_tx.rollback()
    await async_tx.commit()
    assert count() == 0


async def test_an_async_connection_in_a_sync_call_is_refused_with_the_way_out(async_tx: Any) -> None:
    """A sync call cannot await; the message says what to do."""
    with pytest.raises(InvalidOption, match="await the async call"):
        caller_of(async_tx).run(INSERT)


def test_an_autocommit_connection_commits_by_itself(file: Path, count: Callable[[], int]) -> None:
    """A caller without a transaction gets the job at once; nothing is left open."""
    connection = sqlite3.connect(file, isolation_level=None)
    caller_of(connection).run(INSERT)
    assert (connection.in_transaction, count()) == (False, 2)
    connection.close()


def test_a_cursor_stands_for_its_connection(file: Path) -> None:
    """The caller's cursor keeps its own results."""
    connection = sqlite3.connect(file)
    cursor = connection.execute("SELECT 'mine'")
    rows = caller_of(cursor).run(INSERT)
    assert (rows, cursor.fetchall()) == (ROWS, [("mine",)])
    connection.close()


def test_errors_of_the_database_pass_through_unchanged(file: Path) -> None:
    """The caller's transaction is the caller's, and so is what its driver raises."""
    connection = sqlite3.connect(file)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        caller_of(connection).run(CallerStatement("INSERT INTO missing SELECT $1 RETURNING 1", "[]"))
    connection.close()


def test_a_closed_connection_raises_its_drivers_error(file: Path) -> None:
    """No error of ours hides what happened."""
    connection = sqlite3.connect(file)
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        caller_of(connection).run(INSERT)


async def test_our_own_transaction_is_recognised_by_its_store_kind() -> None:
    """What hf.transaction() gives yields dicts; the rows come in column order like everybody's."""

    class OwnTransaction:
        store_kind = "postgres"

        async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
            return [{"sql": sql, "args": args}]

    caller = caller_of(OwnTransaction())
    assert (caller.kind, caller.is_async) == ("postgres", True)
    assert [(INSERT.sql, (INSERT.parameter,))] == await caller.run_async(INSERT)


def test_a_proxy_that_reports_the_wrapped_class_is_recognised(file: Path) -> None:
    """Tracing libraries wrap connections this way."""

    class Traced:
        def __init__(self, wrapped: Any) -> None:
            self.wrapped = wrapped

        @property
        def __class__(self) -> Any:
            return type(self.wrapped)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.wrapped, name)

    connection = sqlite3.connect(file)
    assert caller_of(Traced(connection)).run(INSERT) == ROWS
    connection.close()


@pytest.mark.parametrize("tx", [None, "sqlite:///x.db", object(), sqlite3, lambda: None])
def test_anything_else_is_refused_with_what_is_accepted(tx: object) -> None:
    """The sentence names what was given and lists what may be given."""
    with pytest.raises(InvalidOption, match=r"tx cannot be .*psycopg.*SQLAlchemy.*django\.db\.connection"):
        caller_of(tx)


def test_an_engine_is_refused_because_it_is_no_transaction(engine: sqlalchemy.Engine) -> None:
    """An engine would open a connection of its own, outside the caller's transaction."""
    with pytest.raises(InvalidOption, match=r"sqlalchemy.*Engine"):
        caller_of(engine)


@pytest.mark.parametrize("tx", [django_transaction, django_transaction.atomic()])
def test_djangos_transaction_module_is_refused_with_the_connection_to_pass(tx: object) -> None:
    """The most likely mistake gets its own answer."""
    with pytest.raises(InvalidOption, match=r"pass django\.db\.connection"):
        caller_of(tx)


def test_a_database_that_cannot_hold_jobs_is_refused_by_name() -> None:
    """A connection to something else than PostgreSQL or SQLite is told so before anything runs."""

    class Dialect:
        name = "mysql"

    Connection = type("Connection", (), {"__module__": "sqlalchemy.engine.base", "dialect": Dialect})
    with pytest.raises(InvalidOption, match="connected to mysql"):
        caller_of(Connection())


@pytest.mark.parametrize(
    ("kind", "paramstyle", "written"),
    [
        ("postgres", "format", "SELECT CAST(CAST(%s AS text) AS jsonb), 5 %% 3, 'a:b'::text"),
        ("postgres", "pyformat", "SELECT CAST(CAST(%s AS text) AS jsonb), 5 %% 3, 'a:b'::text"),
        ("postgres", "numeric_dollar", "SELECT CAST(CAST($1 AS text) AS jsonb), 5 % 3, 'a:b'::text"),
        ("sqlite", "qmark", "SELECT CAST(? AS jsonb), 5 % 3, 'a:b'::text"),
        ("sqlite", "format", "SELECT CAST(%s AS jsonb), 5 %% 3, 'a:b'::text"),
    ],
)
def test_the_parameter_is_written_as_the_driver_wants_it(kind: Any, paramstyle: str, written: str) -> None:
    """Percent signs are escaped only where the driver reads them, colons and casts stay as they are."""
    assert written == write_parameter("SELECT CAST($1 AS jsonb), 5 % 3, 'a:b'::text", kind, paramstyle)


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT $1, $1", "SELECT $10"])
def test_a_statement_without_exactly_one_parameter_is_a_mistake_of_ours(sql: str) -> None:
    """Nothing is sent that the contract does not cover."""
    with pytest.raises(ValueError, match=r"exactly one \$1"):
        write_parameter(sql, "sqlite", "qmark")


def test_an_unknown_paramstyle_is_refused_by_name() -> None:
    """Better no statement than one with an unbound parameter."""
    with pytest.raises(InvalidOption, match="'named'"):
        write_parameter("SELECT $1", "sqlite", "named")


def test_recognising_imports_no_driver() -> None:
    """A program pays only for the drivers that it uses itself."""
    code = (
        "import sys; from holdfast.tx import caller_of\n"
        "try: caller_of(object())\n"
        "except Exception: pass\n"
        "print([m for m in ('psycopg', 'asyncpg', 'sqlalchemy', 'django', 'aiosqlite', 'sqlite3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
