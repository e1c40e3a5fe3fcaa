"""Adopting a table: what it lacks is added, and its mapping kept where every reaper finds it."""

from __future__ import annotations

import hashlib
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from holdfast.adopt.layout import PG_NAME_BYTES_MAX, SQL, Found, Layout, look
from holdfast.adopt.table import AdoptedTable, quoted, stored_table
from holdfast.errors import ConfigError, NotFound
from holdfast.store.named_sql import load_migrations
from holdfast.store.protocol import Store, Transaction

BUSY_ROWS = 100_000
"""From here on an index is built by hand, CONCURRENTLY: our transaction would keep writers waiting meanwhile."""

_TYPES = {
    "postgres": {
        "lease_expires_at": "timestamptz",
        "last_heartbeat_at": "timestamptz",
        "started_at": "timestamptz",
        "next_earliest_run_at": "timestamptz",
        "attempt_count": "integer NOT NULL DEFAULT 0",
        "max_attempts": "integer",
        "expected_duration_ms": "bigint",
    },
    "sqlite": {
        "attempt_count": "INTEGER NOT NULL DEFAULT 0",
        "max_attempts": "INTEGER",
        "expected_duration_ms": "INTEGER",
    },
}
_EVENTS = {
    "postgres": "(\n    job_id text NOT NULL,\n    data jsonb NOT NULL,\n    created_at timestamptz NOT NULL DEFAULT now()\n)",
    "sqlite": "(\n    job_id TEXT NOT NULL,\n    data TEXT NOT NULL,\n    created_at TEXT DEFAULT CURRENT_TIMESTAMP\n)",
}


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...


async def plan(platform: Platform, adopted: AdoptedTable) -> list[str]:
    """The statements that the table still needs; changes nothing."""
    async with platform.transaction() as tx:
        return [sql for sql, _ in await _plan(tx, adopted)]


async def adopt(platform: Platform, adopted: AdoptedTable) -> list[str]:
    """All of them or none, and the mapping stored; safe to do again."""
    async with platform.transaction() as tx:
        _refuse_long_locks(await _plan(tx, adopted))  # before anything is changed
    await prepare(platform.store)
    async with platform.transaction() as tx:
        statements = await _plan(tx, adopted)
        _refuse_long_locks(statements)
        if tx.store_kind == "postgres":
            await tx.execute("SET LOCAL lock_timeout = '5s'")  # waiting for a lock, we would keep everybody behind us waiting
        for sql, _ in statements:
            await tx.execute(sql)
        await tx.shared("adopt_save", adopted.table, adopted.mapping())
    return [sql for sql, _ in statements]


async def prepare(store: Store) -> None:
    """Holdfast's own tables for this, which exist only where they are used."""
    if await store.extension_migrate("adopt", load_migrations(f"holdfast.adopt.{store.name}")):
        await store.rows_guard(only_if_on=True)


async def stored(store: Store) -> list[AdoptedTable]:
    if not await store.shared("adopt_in_use"):
        return []
    return [stored_table(row["name"], row["mapping"]) for row in await store.shared("adopt_list")]


async def forget(platform: Platform, table: str) -> None:
    """The reaper no longer looks after it. The table itself stays as it is."""
    there = bool(await platform.store.shared("adopt_in_use"))
    if not there or not await platform.store.shared("adopt_forget", table):
        raise NotFound(f"The table {table!r} is not adopted; `holdfast adopt` lists those that are.")


def _refuse_long_locks(statements: list[tuple[str, bool]]) -> None:
    for sql, is_long in statements:
        if is_long:
            by_hand = sql.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
            raise ConfigError(
                "The table is large, and writers would wait while its index is built: "
                f"run `{by_hand};` yourself, then adopt again."
            )


async def _plan(tx: Transaction, adopted: AdoptedTable) -> list[tuple[str, bool]]:
    """(SQL, whether it may hold up a busy table for long)."""
    layout = await look(tx, adopted)
    types = _TYPES[layout.kind]
    statements = [
        (f"ALTER TABLE {layout.table.quoted} ADD COLUMN {quoted(adopted.column(ours))} {types.get(ours, 'text')}", False)
        for ours in layout.missing
    ]
    if not await _has_index(tx, layout):
        columns = [adopted.column("status"), adopted.column("lease_expires_at")]
        name = _index_name(layout.table.name, *columns)
        sql = f"CREATE INDEX {quoted(name)} ON {layout.table.quoted} ({', '.join(map(quoted, columns))})"
        statements.append((sql, layout.table.rows >= BUSY_ROWS))
    if layout.events is None:
        events = Found(layout.table.schema, _bare(adopted.events, layout.table.schema), {})
        statements.append((f"CREATE TABLE {events.quoted} {_EVENTS[layout.kind]}", False))
        name = _index_name(events.name, "job_id")
        statements.append((f"CREATE INDEX {quoted(name)} ON {events.quoted} ({quoted('job_id')})", False))
    return statements


def _bare(name: str, schema: str | None) -> str:
    return name.removeprefix(f"{schema}.") if schema else name


async def _has_index(tx: Transaction, layout: Layout) -> bool:
    wanted = [layout.adopted.column("status"), layout.adopted.column("lease_expires_at")]
    found: list[list[Any]]
    if layout.kind == "postgres":
        rows = await tx.fetch(SQL["postgres_indexes"], layout.table.schema, layout.table.name)
        found = [row["columns"] or [] for row in rows]
    else:
        by_name: dict[str, list[Any]] = {}
        for row in await tx.fetch(SQL["sqlite_indexes"], layout.table.name):
            by_name.setdefault(row["index_name"], []).append(row["column_name"])
        found = list(by_name.values())
    return any(columns[:2] == wanted for columns in found)


def _index_name(*parts: str) -> str:
    """Short enough for PostgreSQL, and still its own where it had to be cut."""
    name = "_".join([*parts, "idx"])
    if len(name.encode()) <= PG_NAME_BYTES_MAX:
        return name
    cut = name.encode()[: PG_NAME_BYTES_MAX - 9].decode(errors="ignore")
    return f"{cut}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
