"""All that is stored of one tenant: to take it along, or to have it forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.errors import JobConflict
from holdfast.job import State
from holdfast.store.protocol import JobFilter, Store, Table

PAGE = 500
NEVER_EXPORTED = {"hash", "sealed_token", "secret", "sealed_secret", "token", "token_hash"}
"""Columns that let somebody in. They are erased like the rest."""


class Erased(msgspec.Struct):
    tenant: str
    rows: dict[str, int]
    """Table -> how many rows were deleted; what hangs on them (runs, steps) went with them and is not counted."""


async def export(store: Store, tenant: str) -> AsyncIterator[dict[str, Any]]:
    """Row after row as `{"table": …, "row": {…}}`. Read in pages, so that nobody is held up and memory stays small; what
    changes meanwhile is there in the one or the other state."""
    tables = await store.table_list()
    for table in tables:
        where = _belongs(table, tables)
        if where is None:
            continue
        columns = _names(*(column for column in table.columns if column not in NEVER_EXPORTED))
        order = _names(*table.key)
        marks = ", ".join(f"${no}" for no in range(2, 2 + len(table.key)))
        last: list[Any] = []
        while True:
            behind = f" AND ({order}) > ({marks})" if last else ""
            async with store.transaction() as tx:
                rows = await tx.fetch(
                    f"SELECT {columns} FROM {table.name} WHERE {where}{behind} ORDER BY {order} LIMIT {PAGE}", tenant, *last
                )
            for row in rows:
                yield {"table": table.name.removeprefix("holdfast.").removeprefix("holdfast_"), "row": row}
            if len(rows) < PAGE:
                break
            last = [rows[-1][column] for column in table.key]


async def erase(store: Store, tenant: str, by: str | None) -> Erased:
    """In small batches. Refused while a job of the tenant runs: it would write on."""
    running = await store.job_list(JobFilter(tenant=tenant, state=State.RUNNING), cursor=None, limit=1)
    if running:
        raise JobConflict(
            f"Job {running[0].id} of tenant {tenant} is running; pause the tenant, cancel its jobs, and erase then.",
            "job_running",
        )
    counts: dict[str, int] = {}
    for table in await store.table_list():
        if "tenant" not in table.columns and not _is_tenants(table):
            continue  # it hangs on a row that is deleted
        column, key = "id" if _is_tenants(table) else "tenant", _names(*table.key)
        while True:
            async with store.transaction() as tx:
                some = f"SELECT {key} FROM {table.name} WHERE {column} = $1 LIMIT {PAGE}"
                gone = await tx.fetch(f"DELETE FROM {table.name} WHERE ({key}) IN ({some}) RETURNING {column}", tenant)
            counts[table.name] = counts.get(table.name, 0) + len(gone)
            if len(gone) < PAGE:
                break
    async with store.transaction() as tx:
        await tx.shared("audit_write", None, "tenant.erased", by, msgspec.json.encode({"tenant": tenant}).decode())
    return Erased(tenant, {name: count for name, count in counts.items() if count})


def _names(*columns: str) -> str:
    """Quoted: an extension may call a column what is a word of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def _is_tenants(table: Table) -> bool:
    return table.name in ("holdfast.tenants", "holdfast_tenants")


def _belongs(table: Table, tables: list[Table]) -> str | None:
    """The condition under which a row of this table is the tenant's, $1; None where rows belong to nobody."""
    if "tenant" in table.columns:
        return "tenant = $1"
    if _is_tenants(table):
        return "id = $1"
    prefix = table.name[: len("holdfast.")]
    for column, parent in (("repository_id", "extraction_repositories"), ("job_id", "jobs")):
        if column in table.columns and any(other.name == prefix + parent for other in tables):
            return f"{column} IN (SELECT id FROM {prefix}{parent} WHERE tenant = $1)"
    return None
