"""Capacity in a campaign of chaos: tenants with limits, and whether anything is still taken when everybody has gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

from holdfast import Holdfast

LIMITS = {"small": 2, "large": 5}
QUEUE_DEPTH = 100_000
LOCK_SECONDS = 5.0


async def limit_tenants(hf: Holdfast) -> None:
    for tenant, most in LIMITS.items():
        await hf.tenants.set(tenant, limit=most, queue_depth=QUEUE_DEPTH)


async def leaked_places(hf: Holdfast) -> list[str]:
    """Of tenants, by their own books."""
    return [f"{row.running} places of {tenant} are taken" for tenant in LIMITS if (row := await hf.tenants.get(tenant)).running]


def leaked_in_postgres(url: str) -> list[str]:
    """Whatever the processes of this round held there, their own connections included: they are gone, so it must be, too."""
    with psycopg.connect(url, autocommit=True) as admin:
        rows = admin.execute(
            """SELECT 'connection', count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
               UNION ALL SELECT 'advisory lock', count(*) FROM pg_locks
               WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               UNION ALL SELECT 'prepared transaction', count(*) FROM pg_prepared_xacts"""
        ).fetchall()
    return [f"{count} times a {what} was left behind" for what, count in rows if count]


def leaked_in_sqlite(path: str) -> list[str]:
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return [f"the file is still locked: {error}"]
    return []
