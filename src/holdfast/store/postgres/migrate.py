"""Forward only, numbered, under a lock: safe at every start and from many processes at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from holdfast.errors import NotMigrated, NotOurDatabase, SchemaTooNew, StorageError
from holdfast.store.named_sql import load_migrations, load_statements
from holdfast.store.postgres.connections import Connection, Connections

_PACKAGE = "holdfast.store.postgres"
_LOCK = 7_110_001
_FOUND = """
SELECT (SELECT count(*) FROM pg_attribute
         WHERE attrelid = to_regclass('holdfast.migrations') AND attname IN ('component', 'version')) = 2,
       EXISTS (SELECT 1 FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = 'holdfast')
"""
_PREPARE = """
CREATE SCHEMA IF NOT EXISTS holdfast;
CREATE TABLE IF NOT EXISTS holdfast.migrations (
    component   text        NOT NULL,
    version     integer     NOT NULL,
    name        text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, version)
);
"""

_OWN_PATH = """
SELECT set_config('holdfast.callers_path', current_setting('search_path'), true),
       set_config('search_path', 'pg_catalog, pg_temp', true)
"""
"""What a migration calls must not be found in schemas that others may fill. Until the transaction ends, or the next line."""
_CALLERS_PATH = "SELECT set_config('search_path', current_setting('holdfast.callers_path', true), true)"

MIGRATIONS = load_migrations(_PACKAGE)
VERSION = max(number for number, _, _ in MIGRATIONS)


async def migrate(connections: Connections) -> list[str]:
    async with connections.transaction() as connection:
        with connections.errors_translated():
            return await _migrate_core(connection, connections.shown)


async def _migrate_core(connection: Connection, shown: str) -> list[str]:
    # An xact lock, not a session lock: it also works behind a pooler, and cannot be left behind.
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute(_OWN_PATH)
    await _refuse_foreign(connection, shown)
    await connection.execute(_PREPARE)
    found = await _version(connection, "core")
    if found > VERSION:
        raise _too_new(shown, found)
    done = await _apply(connection, "core", MIGRATIONS)
    for script in function_scripts():
        await connection.execute(script)
    return done


async def guard_rows(connections: Connections, *, only_if_on: bool) -> bool:
    """Row level security; whether it is on. `only_if_on`: close what came since, where somebody has asked for it before."""
    async with connections.transaction() as connection:
        with connections.errors_translated():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(_OWN_PATH)
            if only_if_on and not await connection.fetchval("SELECT to_regprocedure('holdfast.my_tenants()') IS NOT NULL"):
                return False
            await connection.execute(_script("rls.sql"))
            return True


def function_scripts() -> list[str]:
    """What every migration makes anew, in this order."""
    return [_script("functions.sql"), _insert_function(), _script("sql_api.sql")]


def scripts(applied: Mapping[str, Collection[int]], extensions: Mapping[str, Sequence[tuple[int, str, str]]]) -> list[str]:
    """All of it, for a connection that is not ours."""
    found = [f"SELECT pg_advisory_xact_lock({_LOCK})", _OWN_PATH, _PREPARE]
    for component, migrations in {"core": MIGRATIONS, **extensions}.items():
        for number, name, sql in sorted(migrations):
            if number not in applied.get(component, ()):
                named = ", ".join("'" + text.replace("'", "''") + "'" for text in (component, name))
                record = f"INSERT INTO holdfast.migrations (component, name, version) VALUES ({named}, {number})"
                found += [sql, record]
        if component == "core":
            found += [*function_scripts(), _CALLERS_PATH]
    return found


def _script(name: str) -> str:
    return files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _insert_function() -> str:
    """For SQL callers: the very statement that Python enqueues with, as a function."""
    return f"""
    CREATE OR REPLACE FUNCTION holdfast.job_insert_json(jsonb)
    RETURNS TABLE (id text, run_id text, state text, tenant text, unique_key text, queue text, priority integer, told bigint)
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $statement$ {load_statements(_PACKAGE)["job_insert_many"]} $statement$
    """


async def migrate_extension(connections: Connections, name: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
    async with connections.transaction() as connection:
        with connections.errors_translated():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            return await _apply(connection, name, migrations)


async def check_version(connections: Connections) -> int:
    async with connections.acquire() as connection:
        with connections.errors_translated():
            await _refuse_foreign(connection, connections.shown)
            if not await connection.fetchval("SELECT to_regclass('holdfast.migrations') IS NOT NULL"):
                raise _not_migrated(connections.shown)
            found = await _version(connection, "core")
            hidden = not found and await connection.fetchval("SELECT row_security_active('holdfast.migrations')")
            if hidden:
                who = await connection.fetchval("SELECT current_user")
                raise StorageError(
                    f"Row level security hides Holdfast's tables from the database user {who}; "
                    f"run `GRANT service_role TO {who};`, or connect as the tables' owner."
                )
    if found > VERSION:
        raise _too_new(connections.shown, found)
    if found < VERSION:
        raise _not_migrated(connections.shown)
    return found


async def _apply(connection: Connection, component: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
    rows = await connection.fetch("SELECT version FROM holdfast.migrations WHERE component = $1", component)
    applied = {row["version"] for row in rows}
    done = []
    for number, name, sql in sorted(migrations):
        if number not in applied:
            await connection.execute(sql)
            await connection.execute(
                "INSERT INTO holdfast.migrations (component, version, name) VALUES ($1, $2, $3)", component, number, name
            )
            done.append(f"{number:04}_{name}")
    return done


async def _version(connection: Connection, component: str) -> int:
    found: Any = await connection.fetchval(
        "SELECT coalesce(max(version), 0) FROM holdfast.migrations WHERE component = $1", component
    )
    return int(found)


async def _refuse_foreign(connection: Connection, shown: str) -> None:
    ours, anything = await connection.fetchrow(_FOUND)
    if anything and not ours:
        raise NotOurDatabase(
            f"The database at {shown} has a schema called holdfast that Holdfast did not make; "
            "rename it, or use another database."
        )


def _not_migrated(shown: str) -> NotMigrated:
    return NotMigrated(
        f"The database at {shown} is not set up for this version; run `holdfast migrate` or call `await hf.migrate()`."
    )


def _too_new(shown: str, found: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"The database at {shown} has schema version {found}, this Holdfast knows {VERSION}; upgrade the holdfast package."
    )
