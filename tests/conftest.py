"""Fixtures for every test: a fresh migrated database of each kind, a clock, a store, an application, processes.

`--store sqlite|postgres|both` says which databases take part. PostgreSQL comes out of a wheel, or is the server that
`HOLDFAST_TEST_POSTGRES_URL` names (its user must be allowed to create databases).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from holdfast.clock import ManualClock
from tests.support.fuzzing import TIMES
from tests.support.processes import Processes
from tests.support.scheduling import pytest_xdist_make_scheduler  # noqa: F401  a hook
from tests.support.watchdog import pytest_configure  # noqa: F401  a hook

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.store.protocol import Store
    from tests.support.pgbouncer import PgBouncer
    from tests.support.postgres import Databases, OwnServer

# A busy machine is no finding, and what `make test` tries is the same every time; new examples are for `make fuzz`.
settings.register_profile("steady", deadline=None, derandomize=TIMES == 1, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

LONG = (
    "web/test_fuzz.py",
    "simulation/test_simulation.py",
    "simulation/test_mutations.py",
    "packaging/test_released.py",
    "processes/test_kill_audit.py",
    "processes/test_kill_workers.py",
    "processes/test_database_down.py",
    "processes/test_tools.py",
    "processes/test_cli_extract.py",
    "web/test_matrix.py",
    "web/test_extraction_routes.py",
    "security/test_own_repository.py",
    "unit/test_suite_hangs.py",
    "cases/test_isolated.py",
    "processes/test_cli_worker.py",
    "processes/test_kill_late.py",
    "processes/test_exact_limits.py",
    "unit/extraction/test_hostile_manifests.py",
    "unit/test_typing.py",
)
"""These begin while there is other work to share: four processes go through the suite file by file."""
NEED_POSTGRES = {"postgres_databases", "postgres_url", "own_postgres"}
NEED_SQLITE = {"sqlite_template", "sqlite_url"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pooler", action="store_true", help="PostgreSQL is reached through PgBouncer in transaction mode")
    parser.addoption("--store", choices=("sqlite", "postgres", "both"), default="both", help="which databases take part")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first. Leave out the tests of the database that was not asked for; tests that need none always run."""
    places = {config.rootpath / "tests" / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))  # all others stay in their order
    wanted = config.getoption("--store")
    if wanted == "both":
        return
    kept = [item for item in items if _kind_of(item) in (None, wanted)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _kind_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "store_kind" in callspec.params:
        return str(callspec.params["store_kind"])
    names = set(getattr(item, "fixturenames", ()))
    if names & NEED_POSTGRES:
        return "postgres"
    return "sqlite" if names & NEED_SQLITE else None


# -- databases ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_databases() -> Iterator[Databases]:
    from tests.support.postgres import NOT_DURABLE, Databases, OwnServer

    given = os.environ.get("HOLDFAST_TEST_POSTGRES_URL")
    server = None if given else OwnServer(**NOT_DURABLE)
    try:
        databases = Databases(given or server.start().url)  # type: ignore[union-attr]
        yield databases
        databases.close()
    finally:
        if server:
            server.remove()


@pytest.fixture
def postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """A fresh migrated PostgreSQL database, whatever `store_kind` says."""
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from holdfast.store.sqlite.store import SqliteStore
    from tests.support.apart import run_apart

    path = tmp_path_factory.mktemp("template") / "holdfast.db"

    async def migrate() -> None:
        store = SqliteStore(str(path))
        await store.schema_migrate()
        await store.close()

    run_apart(migrate())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a copy of the file alone must be the whole database
    connection.close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite file, whatever `store_kind` says."""
    path = tmp_path / "holdfast.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(store_kind: str, request: pytest.FixtureRequest) -> str:
    """A fresh migrated database: the test runs once for each kind of store."""
    url: str = request.getfixturevalue(f"{store_kind}_url")
    if store_kind == "postgres" and request.config.getoption("--pooler"):
        pooler: PgBouncer = request.getfixturevalue("pgbouncer")
        return pooler.url_of(url)
    return url


@pytest.fixture(scope="session")
def pgbouncer(postgres_databases: Databases) -> Iterator[PgBouncer]:
    """For `--pooler`: one in front of all databases of the session."""
    from tests.support.pgbouncer import PgBouncer

    bouncer = PgBouncer(postgres_databases.admin_url, server_connections=10)
    yield bouncer
    bouncer.remove()


@pytest.fixture
def own_postgres() -> Iterator[OwnServer]:
    """A running PostgreSQL of the test's own with durability on, to be stopped and started; its databases are empty."""
    from tests.support.postgres import OwnServer

    server = OwnServer()
    try:
        yield server.start()
    finally:
        server.remove()


# -- what is built on a database ---------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(database_url: str, store_kind: str, clock: ManualClock) -> AsyncIterator[Store]:
    """A store whose time is the test's own `clock`."""
    opened = open_store(store_kind, database_url, clock=clock)
    yield opened
    await opened.close()


def open_store(kind: str, url: str, **options: Any) -> Store:
    if kind == "sqlite":
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"), **options)
    from holdfast.store.postgres.store import PostgresStore

    return PostgresStore(url, **options)


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An application on the database's own clock."""
    from holdfast import Holdfast

    app = Holdfast(database_url)
    yield app
    await app.aclose()


@pytest.fixture
async def hf_at(database_url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An application whose time is the test's own `clock`."""
    from holdfast import Holdfast

    app = Holdfast(database_url, clock=clock)
    yield app
    await app.aclose()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts real workers and other programs; whatever still runs at the end of the test is killed."""
    started = Processes(tmp_path)
    yield started
    started.end_all()
