"""What ails a PostgreSQL that holds jobs: each finding with the one command that mends it. Looks only."""

from __future__ import annotations

from typing import Any

from holdfast.app import Holdfast
from holdfast.doctor_check import Check

OLD_TRANSACTION_SECONDS = 300
DEAD_ROWS_MIN = 50_000
DEAD_SHARE_MAX = 0.5

_RIGHTS = """
SELECT has_schema_privilege('holdfast', 'USAGE') AS schema,
       has_table_privilege('holdfast.jobs', 'SELECT') AND has_table_privilege('holdfast.jobs', 'INSERT')
       AND has_table_privilege('holdfast.jobs', 'UPDATE') AND has_table_privilege('holdfast.jobs', 'DELETE') AS jobs,
       current_user::text AS who, current_setting('default_transaction_isolation') AS isolation
"""
_OLD_TRANSACTIONS = """
SELECT pid, coalesce(nullif(application_name, ''), 'unknown') AS program,
       extract(epoch FROM now() - xact_start)::bigint AS seconds
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
   AND xact_start < now() - make_interval(secs => $1)
 ORDER BY xact_start LIMIT 3
"""
_BROKEN_INDEXES = """
SELECT i.indexrelid::regclass::text AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE c.relnamespace = 'holdfast'::regnamespace AND NOT i.indisvalid ORDER BY 1
"""
_DEAD_ROWS = """
SELECT relname AS name, n_dead_tup AS dead, n_live_tup AS live, last_autovacuum IS NULL AND last_vacuum IS NULL AS never
  FROM pg_stat_user_tables WHERE schemaname = 'holdfast' AND n_dead_tup > $1 AND n_dead_tup > $2 * (n_live_tup + n_dead_tup)
 ORDER BY n_dead_tup DESC
"""
_VACUUMING = """
SELECT current_setting('autovacuum') AS on_at_all,
       coalesce(array_to_string(c.reloptions, ',') LIKE '%autovacuum_vacuum_scale_factor%', false) AS tuned,
       coalesce(array_to_string(c.reloptions, ',') LIKE '%autovacuum_enabled=false%', false) AS off_for_jobs
  FROM pg_class c WHERE c.oid = 'holdfast.jobs'::regclass
"""
_STALE_SLOTS = """
SELECT slot_name::text AS name FROM pg_replication_slots
 WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) ORDER BY 1
"""

Row = dict[str, Any]


async def examine_postgres(hf: Holdfast) -> list[Check]:
    async with hf.transaction() as tx:
        (rights,) = await tx.fetch(_RIGHTS)
        old = await tx.fetch(_OLD_TRANSACTIONS, OLD_TRANSACTION_SECONDS)
        broken = await tx.fetch(_BROKEN_INDEXES)
        dead = await tx.fetch(_DEAD_ROWS, DEAD_ROWS_MIN, DEAD_SHARE_MAX)
        (vacuuming,) = await tx.fetch(_VACUUMING)
        stale = await tx.fetch(_STALE_SLOTS)
    return [
        _permissions(rights),
        _transactions(old),
        _indexes(broken),
        _bloat(dead),
        _autovacuum(vacuuming),
        *([_slots(stale)] if stale else []),
    ]


def _permissions(rights: Row) -> Check:
    who = rights["who"]
    if not rights["schema"] or not rights["jobs"]:
        return Check(
            "permissions", "error", f"the database user {who} may not read and write jobs", f"GRANT service_role TO {who};"
        )
    if rights["isolation"] != "read committed":
        return Check(
            "permissions",
            "warning",
            f"transactions of {who} are {rights['isolation']} by default, and limits are counted read committed",
            f"ALTER ROLE {who} SET default_transaction_isolation = 'read committed';",
        )
    return Check("permissions", "ok", f"the database user {who} may read and write")


def _transactions(old: list[Row]) -> Check:
    if not old:
        return Check("transactions", "ok", "none is open for long")
    worst = old[0]
    return Check(
        "transactions",
        "warning",
        f"{worst['program']} (process {worst['pid']}) has had a transaction open for {worst['seconds'] // 60} minutes; "
        "until it ends no dead row can be removed, and claims get slower",
        f"SELECT pg_terminate_backend({worst['pid']});",
    )


def _indexes(broken: list[Row]) -> Check:
    if not broken:
        return Check("indexes", "ok", "all are valid")
    return Check(
        "indexes", "error", f"{broken[0]['name']} is invalid and not used", f"REINDEX INDEX CONCURRENTLY {broken[0]['name']};"
    )


def _bloat(dead: list[Row]) -> Check:
    if not dead:
        return Check("dead rows", "ok", "few")
    worst = dead[0]
    never = ", and it was never vacuumed" if worst["never"] else ""
    return Check(
        "dead rows",
        "warning",
        f"holdfast.{worst['name']} has {worst['dead']:,} dead rows beside {worst['live']:,} live ones{never}",
        f"VACUUM (ANALYZE) holdfast.{worst['name']};",
    )


def _autovacuum(found: Row) -> Check:
    if found["on_at_all"] != "on":
        return Check("autovacuum", "error", "autovacuum is off, so tables only grow", "ALTER SYSTEM SET autovacuum = on;")
    if found["off_for_jobs"] or not found["tuned"]:
        return Check(
            "autovacuum",
            "warning",
            "holdfast.jobs has lost its autovacuum settings, so it is tidied too seldom",
            "ALTER TABLE holdfast.jobs SET (autovacuum_enabled = true, autovacuum_vacuum_scale_factor = 0.02);",
        )
    return Check("autovacuum", "ok", "on, and set for a busy table")


def _slots(stale: list[Row]) -> Check:
    return Check(
        "replication",
        "warning",
        f"nobody reads the replication slot {stale[0]['name']}; it keeps dead rows and files for ever",
        f"SELECT pg_drop_replication_slot('{stale[0]['name']}');",
    )
