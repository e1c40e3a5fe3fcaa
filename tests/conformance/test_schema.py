"""The schema: brought up by anybody, any number of times, and never laid over what is not ours."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.errors import ConfigError, NotMigrated, NotOurDatabase, SchemaTooNew, StorageError, StorageUnavailable
from holdfast.ids import new_job_id, new_run_id
from holdfast.store.named_sql import load_migrations
from holdfast.store.protocol import LogFilter, Store
from holdfast.store.sqlite import connection as sqlite_connection
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import by_hand, claimed_ids, insert, new_job, table
from tests.conftest import open_store
from tests.support.postgres import OwnServer
from tests.support.processes import Processes

CATALOG = {
    "relations": "SELECT relname, relkind, reloptions FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace",
    "columns": """SELECT table_name, ordinal_position, column_name, data_type, udt_name, is_nullable, column_default,
        identity_generation FROM information_schema.columns WHERE table_schema = 'holdfast'""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'holdfast'",
    "constraints": """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'holdfast'::regnamespace""",
    "functions": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}


def run_sql(url: str, sql: str) -> None:
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.executescript(sql)
        file.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())


def catalog(url: str) -> dict[str, Any]:
    """Everything of ours that the database knows, in words that can be compared."""
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        rows = file.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        file.close()
        return {f"{kind} {name}": _plain(sql) for kind, name, sql in rows}
    with psycopg.connect(url) as connection:
        if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'holdfast'").fetchone():
            return {}
        return {what: sorted(map(str, connection.execute(query.encode()).fetchall())) for what, query in CATALOG.items()}


def _plain(sql: str) -> str:
    without_comments = re.sub(r"--[^\n]*", " ", sql).replace("IF NOT EXISTS ", "")
    return " ".join(without_comments.split()).replace("( ", "(").replace(" )", ")").replace(" ,", ",")


def latest(store_name: str) -> int:
    return max(number for number, _, _ in load_migrations(f"holdfast.store.{store_name}"))


# -- bringing it up --------------------------------------------------------------------------------------------------------


@pytest.mark.case("D35")
async def test_a_migration_applies_each_file_once(open_unmigrated: OpenAnother) -> None:
    """The first run names what it applied, the second has nothing to do, and jobs can be inserted."""
    store = open_unmigrated()
    applied = await store.schema_migrate()
    assert applied == [f"{number:04}_{name}" for number, name, _ in load_migrations(f"holdfast.store.{store.name}")]
    assert await store.schema_migrate() == []
    assert await store.schema_version() == latest(store.name)
    assert (await insert(store)).created


async def test_a_second_migration_leaves_the_jobs_alone(store: Store, open_another: OpenAnother) -> None:
    """It is safe at every start."""
    job = await insert(store)
    assert await open_another().schema_migrate() == []
    assert [job.id] == await claimed_ids(store)


@pytest.mark.case("D35")
async def test_eight_migrations_at_once_apply_it_once(open_unmigrated: OpenAnother) -> None:
    """One of them did it, the others waited and found it done."""
    stores = [open_unmigrated() for _ in range(8)]
    applied = await asyncio.gather(*(store.schema_migrate() for store in stores))
    assert [len(one) for one in applied].count(0) == 7
    assert await stores[0].schema_version() == latest(stores[0].name)


MIGRATE_APART = """
import asyncio, sys
from tests.conftest import open_store

async def main(kind, url):
    stores = [open_store(kind, url) for _ in range(4)]
    for applied in await asyncio.gather(*(store.schema_migrate() for store in stores)):
        print("applied", len(applied), flush=True)
    for store in stores:
        await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.case("D35")
async def test_migrations_from_two_processes_apply_it_once(store_kind: str, unmigrated_url: str, processes: Processes) -> None:
    """Four stores in each of two processes: one in all has applied it, none has failed."""
    started = [processes.python("-c", MIGRATE_APART, store_kind, unmigrated_url) for _ in range(2)]
    assert [await process.exited(timeout=60) for process in started] == [0, 0], [process.output for process in started]
    counts = [int(n) for process in started for n in re.findall(r"applied (\d+)", process.output)]
    assert sorted(counts) == [0] * 7 + [len(load_migrations(f"holdfast.store.{store_kind}"))]


OLD_ROWS = (
    "INSERT INTO {jobs} (id, run_id, queue, task, args, tenant, max_attempts, lease_seconds, run_at, created_at, updated_at) "
    "VALUES (JOB, RUN, 'q', 't', '{{}}', 'acme', 1, 60, NOW, NOW, NOW)",
    "INSERT INTO {logs} (run_id, no, job_id, level, message, created_at) VALUES (RUN, 1, JOB, 'info', 'kept', NOW)",
    "INSERT INTO {events} (job_id, tenant, type, data, at) VALUES (JOB, 'acme', 'job.cancel_requested', '{{}}', NOW)",
)


async def test_a_database_of_the_release_before_keeps_its_lines(
    open_unmigrated: OpenAnother, store_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines and events are there afterwards, and are read as before."""
    migrate = import_module(f"holdfast.store.{store_kind}.migrate")
    with monkeypatch.context() as before:
        before.setattr(migrate, "MIGRATIONS", migrate.MIGRATIONS[:2])
        before.setattr(migrate, "VERSION", 2)
        before.setattr(migrate, "function_scripts", list, raising=False)  # of this release, for columns that came later
        old = open_unmigrated()
        assert len(await old.schema_migrate()) == 2
        job_id, run_id = new_job_id(), new_run_id()
        now = "now()" if store_kind == "postgres" else "1900000000.0"
        for sql in OLD_ROWS:  # by hand: this release's own statements name columns that came later
            await by_hand(old, sql.replace("NOW", now).replace("JOB", f"'{job_id}'").replace("RUN", f"'{run_id}'"))
    new = open_unmigrated()
    with pytest.raises(NotMigrated):
        await new.schema_version()
    assert any(name.endswith("_logs") for name in await new.schema_migrate())
    assert [one.message for one in await new.log_read(run_id, LogFilter(), limit=10)] == ["kept"]
    assert (await new.job_get(job_id)).tenant == "acme"
    assert [event.type for event in await new.event_list(tenant="acme", limit=10)] == ["job.cancel_requested"]


def test_the_schema_on_one_page_is_what_the_migrations_make(store_kind: str, database_url: str, tmp_path: Path) -> None:
    """Tables, columns, types, defaults, indexes, constraints, triggers and functions are equal."""
    package = files(f"holdfast.store.{store_kind}")
    migrated = catalog(database_url)
    page = package.joinpath("schema.sql").read_text(encoding="utf-8")
    if store_kind == "sqlite":
        by_page = f"sqlite:///{tmp_path / 'page.db'}"
        run_sql(by_page, page)
    else:
        by_page = database_url
        run_sql(by_page, f"DROP SCHEMA holdfast CASCADE; {page}")
        for script in import_module("holdfast.store.postgres.migrate").function_scripts():
            run_sql(by_page, script)
    assert migrated == catalog(by_page)
    assert len(migrated) > 5


# -- what this code cannot work with ---------------------------------------------------------------------------------------


async def test_a_database_that_was_not_migrated_says_what_to_do(open_unmigrated: OpenAnother, unmigrated_url: str) -> None:
    """Every verb says it, not only the question for the version; and nothing is made by asking."""
    store = open_unmigrated()
    for verb in (store.schema_version(), store.job_counts(), store.job_insert_many([new_job()])):
        with pytest.raises(NotMigrated, match="holdfast migrate"):
            await verb
    path = Path(unmigrated_url.removeprefix("sqlite:///"))
    assert not path.exists()
    assert store.name == "sqlite" or catalog(unmigrated_url) == {}


async def test_a_database_migrated_meanwhile_is_taken_up_without_a_restart(open_unmigrated: OpenAnother) -> None:
    """A worker that started too early works once somebody has migrated."""
    early = open_unmigrated()
    with pytest.raises(NotMigrated):
        await early.job_counts()
    await open_unmigrated().schema_migrate()
    assert (await insert(early)).created


async def test_a_schema_of_a_later_release_is_refused(store: Store, open_another: OpenAnother, database_url: str) -> None:
    """By the question, by the migration and by every verb; the sentence says to upgrade, and nothing is changed."""
    later = "INSERT INTO {migrations} (component, version, name, applied_at)"
    await by_hand(store, f"{later} SELECT 'core', 999, 'x', max(applied_at) FROM {{migrations}}")
    before, old = catalog(database_url), open_another()
    for verb in (old.schema_version(), old.schema_migrate(), old.job_counts(), old.job_insert_many([new_job()])):
        with pytest.raises(SchemaTooNew, match=r"999.*upgrade the holdfast package"):
            await verb
    assert before == catalog(database_url)
    assert await by_hand(store, "SELECT id FROM {jobs}") == []


@pytest.mark.parametrize("foreign", ["other", "migrations"])
async def test_tables_that_are_not_ours_are_left_alone(
    open_unmigrated: OpenAnother, unmigrated_url: str, store_kind: str, foreign: str
) -> None:
    """Somebody else's tables under our name: refused with what to do, also where one is called like ours."""
    store = open_unmigrated()
    schema = "CREATE SCHEMA holdfast; " if store_kind == "postgres" else ""
    run_sql(unmigrated_url, f"{schema}CREATE TABLE {table(store, foreign)} (whatever text)")
    before = catalog(unmigrated_url)
    for verb in (store.schema_version(), store.schema_migrate(), store.job_counts()):
        with pytest.raises(NotOurDatabase, match="did not make; rename"):
            await verb
    assert before == catalog(unmigrated_url)


async def test_a_users_own_tables_do_not_disturb(open_unmigrated: OpenAnother, unmigrated_url: str) -> None:
    """Jobs may live in the application's own database, beside its tables."""
    run_sql(unmigrated_url, "CREATE TABLE jobs (whatever text); INSERT INTO jobs VALUES ('mine')")
    store = open_unmigrated()
    assert await store.schema_migrate() != []
    async with store.transaction() as tx:
        assert await tx.fetch("SELECT whatever FROM jobs") == [{"whatever": "mine"}]


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    """SQLite only: a path mistyped into somebody's document."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ana, " * 1000, encoding="utf-8")
    store = open_store("sqlite", str(path))
    for verb in (store.schema_version(), store.schema_migrate()):
        with pytest.raises(NotOurDatabase, match="is not an SQLite database"):
            await verb
    await store.close()
    assert path.read_text(encoding="utf-8") == "Dear Ana, " * 1000
    assert [path] == list(tmp_path.iterdir())


# -- extensions ------------------------------------------------------------------------------------------------------------

FIRST = (1, "pets", "CREATE TABLE pets (name TEXT); INSERT INTO pets VALUES ('rex');")
SECOND = (2, "more", "INSERT INTO pets VALUES ('tom');")


async def pets(store: Store) -> list[str]:
    async with store.transaction() as tx:
        return [row["name"] for row in await tx.fetch("SELECT name FROM pets ORDER BY name")]


async def test_an_extension_applies_its_files_in_order_each_once(store: Store) -> None:
    """What is new is applied, by number and not by place in the list."""
    assert await store.extension_migrate("zoo", [FIRST]) == ["0001_pets"]
    third = (3, "last", "UPDATE pets SET name = name || '!'")
    assert await store.extension_migrate("zoo", [third, SECOND, FIRST]) == ["0002_more", "0003_last"]
    assert await store.extension_migrate("zoo", [FIRST, SECOND, third]) == []
    assert await pets(store) == ["rex!", "tom!"]


async def test_a_file_that_was_overtaken_by_a_later_one_is_still_applied(store: Store) -> None:
    """Two branches were merged in the other order: number two counts although number three is there."""
    await store.extension_migrate("zoo", [FIRST, (3, "last", "INSERT INTO pets VALUES ('zed')")])
    assert await store.extension_migrate("zoo", [FIRST, SECOND]) == ["0002_more"]
    assert await pets(store) == ["rex", "tom", "zed"]


async def test_extensions_number_their_files_apart(store: Store) -> None:
    """Two extensions and ours may each have a number one, and our version stays what it was."""
    await store.extension_migrate("zoo", [FIRST])
    assert await store.extension_migrate("farm", [(1, "cows", "CREATE TABLE cows (name TEXT)")]) == ["0001_cows"]
    assert await store.schema_version() == latest(store.name)


async def test_an_extension_whose_file_fails_leaves_nothing(store: Store) -> None:
    """All or nothing: mended, it is applied from the start."""
    with pytest.raises(StorageError):
        await store.extension_migrate("zoo", [FIRST, (2, "bad", "INSERT INTO nowhere VALUES (1)")])
    assert await store.extension_migrate("zoo", [FIRST, SECOND]) == ["0001_pets", "0002_more"]
    assert await pets(store) == ["rex", "tom"]


async def test_many_may_migrate_an_extension_at_once(store: Store, open_another: OpenAnother) -> None:
    """Applied once, whoever was first."""
    stores = [store, *(open_another() for _ in range(3))]
    applied = await asyncio.gather(*(one.extension_migrate("zoo", [FIRST, SECOND]) for one in stores))
    assert sorted(map(len, applied)) == [0, 0, 0, 2]


async def test_an_extension_needs_our_schema_first(open_unmigrated: OpenAnother) -> None:
    """It says what to do."""
    with pytest.raises(NotMigrated, match="holdfast migrate"):
        await open_unmigrated().extension_migrate("zoo", [FIRST])


async def test_scripts_for_a_callers_connection_make_the_same_schema(
    open_unmigrated: OpenAnother, unmigrated_url: str, database_url: str
) -> None:
    """As a framework's migrations run them: what is applied already is left out, and nothing is pending afterwards."""
    store = open_unmigrated()
    for script in store.schema_scripts({}, {"zoo": [FIRST]}):
        run_sql(unmigrated_url, script)
    assert await store.schema_version() == latest(store.name)
    assert await store.extension_migrate("zoo", [FIRST]) == []
    done = {"core": {number for number, _, _ in load_migrations(f"holdfast.store.{store.name}")}, "zoo": {1}}
    for script in store.schema_scripts(done, {"zoo": [FIRST, SECOND]}):
        run_sql(unmigrated_url, script)
    assert await pets(store) == ["rex", "tom"]
    made, ours = catalog(unmigrated_url), catalog(database_url)
    made.pop("table pets", None)
    assert made == ours


# -- away ------------------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_away_is_a_typed_error_and_nothing_is_written(own_postgres: OwnServer) -> None:
    """Every verb says so while the server is down, and works again when it is back."""
    store = open_store("postgres", own_postgres.url)
    await store.schema_migrate()
    before = await insert(store)
    own_postgres.stop("immediate")
    for verb in (insert(store), store.job_counts(), claimed_ids(store), store.schema_version(), store.schema_migrate()):
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            await verb
    with pytest.raises(StorageUnavailable):
        async with store.transaction():
            pytest.fail("there is no server to begin with")
    own_postgres.start()
    assert [before.id] == await claimed_ids(store, 10)
    await store.close()


async def test_a_file_that_cannot_be_there_is_a_typed_error(tmp_path: Path) -> None:
    """SQLite: the folder is missing, or is a file; the sentence says what to do."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in ("missing", "file"):
        store = open_store("sqlite", str(tmp_path / folder / "jobs.db"))
        for verb in (store.schema_migrate(), store.job_counts(), insert(store)):
            with pytest.raises(StorageUnavailable, match="does not exist; create it"):
                await verb
        await store.close()


async def test_a_file_that_somebody_keeps_locked_is_a_typed_error(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite: nothing is written, reading goes on, and writing works again once the lock is gone."""
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.1)
    store, job = open_store("sqlite", sqlite_url), new_job()
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="locked by another writer"):
        await store.job_insert_many([job])
    assert (await store.job_counts())["queued"] == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert (await store.job_insert_many([job]))[0].created
    await store.close()


async def test_row_level_security_is_brought_up_to_date_only_where_somebody_asked_for_it(store: Store) -> None:
    """A plain migration neither turns it on nor fails for want of it."""
    assert await store.rows_guard(only_if_on=True) is False


async def test_row_level_security_is_on_after_it_was_asked_for_or_is_refused_where_there_is_none(
    store: Store, store_kind: str
) -> None:
    """PostgreSQL has it, and then keeps it; an SQLite file has not, and says so."""
    if store_kind == "sqlite":
        with pytest.raises(ConfigError, match="needs PostgreSQL"):
            await store.rows_guard()
    else:
        assert await store.rows_guard() and await store.rows_guard(only_if_on=True)


async def test_the_tables_are_known_with_their_columns_and_keys(store: Store, store_kind: str) -> None:
    """Whoever goes through all that is stored goes by this."""
    tables = {table.name.removeprefix("holdfast").lstrip("._"): table for table in await store.table_list()}
    assert tables["logs"].key == ("run_id", "no")
    assert {"id", "tenant", "args"} <= set(tables["jobs"].columns)
    assert all(table.key for table in tables.values())


async def test_a_store_that_is_reached_directly_sees_no_pooler(store: Store, request: pytest.FixtureRequest) -> None:
    """Only a pooler that is really there changes how statements are sent."""
    await store.table_list()
    assert store.pooled is bool(request.config.getoption("--pooler") and store.name == "postgres")
