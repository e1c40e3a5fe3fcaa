"""Row level security: who reads what with a SQL console, as each role, table by table."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from holdfast import Holdfast
from holdfast.extraction.app import Extraction
from tests.support.apart import run_apart
from tests.support.postgres import Databases

ANA, BOB = str(uuid.uuid4()), str(uuid.uuid4())
"""Ana is in acme, Bob is in globex."""
OPEN = ("jobs", "runs", "logs", "events", "extraction_repositories", "extraction_dependencies")
HIDDEN = {"jobs": ("args", "machine_id", "locked_by"), "runs": ("machine_id", "worker"), "events": ("data",)}


@pytest.fixture(scope="module")
def guarded(postgres_databases: Databases) -> Iterator[psycopg.Connection[Any]]:
    """A database with row level security and rows of two tenants, connected as its owner."""
    url = postgres_databases.create()
    run_apart(_migrate(url))
    with psycopg.connect(url, autocommit=True) as owner:
        for tenant, person in (("acme", ANA), ("globex", BOB)):
            _seed(owner, tenant, person)
        yield owner
    postgres_databases.drop(url)


async def _migrate(url: str) -> None:
    hf = Holdfast(url)
    Extraction(hf)
    await hf.migrate(rls=True)
    await hf.migrate(rls=True)  # safe to run twice
    await hf.aclose()


def _seed(owner: psycopg.Connection[Any], tenant: str, person: str) -> None:
    job = str(uuid.uuid4())
    owner.execute(
        "INSERT INTO holdfast.members (tenant, user_id, role, added_at) VALUES (%s, %s, 'member', now())", (tenant, person)
    )
    owner.execute(
        "INSERT INTO holdfast.jobs"
        " (id, run_id, queue, task, tenant, run_at, max_attempts, lease_seconds, created_at, updated_at, args)"
        " VALUES (%s, gen_random_uuid(), 'default', 'work', %s, now(), 3, 300, now(), now(), '{\"token\": 1}')",
        (job, tenant),
    )
    owner.execute(
        "INSERT INTO holdfast.runs (job_id, run_no, run_id, attempt, outcome) VALUES (%s, 1, gen_random_uuid(), 1, 'failed')",
        (job,),
    )
    owner.execute(
        "INSERT INTO holdfast.logs (run_id, no, job_id, tenant, level, message, created_at)"
        " VALUES (gen_random_uuid(), 1, %s, %s, 'info', 'hello', now())",
        (job, tenant),
    )
    owner.execute(
        "INSERT INTO holdfast.events (job_id, tenant, type, at) VALUES (%s, %s, 'job.cancelled', now())", (job, tenant)
    )
    owner.execute(
        "INSERT INTO holdfast.extraction_repositories (id, tenant, project, provider, source, full_name, path)"
        " VALUES (%s, %s, 'web', 'github', 'https://github.com/a/b', 'a/b', '.')",
        (f"repo-{tenant}", tenant),
    )
    owner.execute(
        "INSERT INTO holdfast.extraction_dependencies"
        " (repository_id, key, fingerprint, purl, name, version, ecosystem, scope, direct, manifest, depends_on)"
        " VALUES (%s, 'k', 'f', 'pkg:npm/a@1', 'a', '1', 'npm', 'required', true, 'package.json', '[]')",
        (f"repo-{tenant}",),
    )


@contextmanager
def acting_as(owner: psycopg.Connection[Any], role: str, person: str | None = None) -> Iterator[psycopg.Connection[Any]]:
    """As PostgREST does it: a transaction with the role and the claims of the token, and nothing of it left behind."""
    with owner.transaction(force_rollback=True):
        claims = {"role": role} | ({"sub": person} if person else {})
        owner.execute("SELECT set_config('request.jwt.claims', %s, true)", (json.dumps(claims),))
        owner.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        yield owner


def count(connection: psycopg.Connection[Any], relation: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM holdfast.{}").format(sql.Identifier(relation))).fetchone()
    assert row is not None
    return int(row[0])


def every_table(owner: psycopg.Connection[Any]) -> list[str]:
    found = owner.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname"
    )
    return [row[0] for row in found]


@pytest.mark.case("P11")
@pytest.mark.parametrize("table", OPEN)
def test_a_member_reads_the_rows_of_its_own_tenant_alone(guarded: psycopg.Connection[Any], table: str) -> None:
    """Two tenants have a row each; each member sees one, by the table and by its view."""
    for person in (ANA, BOB):
        with acting_as(guarded, "authenticated", person) as connection:
            assert (count(connection, table), count(connection, f"my_{table}")) == (1, 1)


@pytest.mark.case("P11")
def test_what_a_member_reads_is_its_own(guarded: psycopg.Connection[Any]) -> None:
    """Not just as many rows as there should be, but the right ones."""
    with acting_as(guarded, "authenticated", ANA) as connection:
        assert connection.execute("SELECT DISTINCT tenant FROM holdfast.my_jobs").fetchall() == [("acme",)]
        assert connection.execute("SELECT DISTINCT tenant FROM holdfast.my_logs").fetchall() == [("acme",)]
        assert connection.execute("SELECT repository_id FROM holdfast.my_extraction_dependencies").fetchall() == [
            ("repo-acme",)
        ]


@pytest.mark.case("P11")
@pytest.mark.parametrize("table", OPEN)
def test_somebody_in_no_organization_reads_nothing(guarded: psycopg.Connection[Any], table: str) -> None:
    """Neither a stranger with a token, nor a token without a subject."""
    for person in (str(uuid.uuid4()), None):
        with acting_as(guarded, "authenticated", person) as connection:
            assert count(connection, table) == 0


@pytest.mark.case("P11")
def test_anon_may_not_even_ask(guarded: psycopg.Connection[Any]) -> None:
    """Every table of the schema, not only those that are known today."""
    for table in every_table(guarded):
        with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "anon") as connection:
            count(connection, table)


@pytest.mark.case("P11")
def test_all_other_tables_are_closed_to_members(guarded: psycopg.Connection[Any]) -> None:
    """Keys, sessions, members, plans and whatever a later migration brings."""
    closed = [table for table in every_table(guarded) if table not in OPEN and not table.startswith("extraction_")]
    assert {"keys", "sessions", "members", "steps", "workers", "idempotency_keys"} <= set(closed)
    for table in closed:
        with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "authenticated", ANA) as connection:
            count(connection, table)


@pytest.mark.case("P11")
@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in HIDDEN.items() for column in columns])
def test_arguments_workers_and_machines_are_hidden_from_members(
    guarded: psycopg.Connection[Any], table: str, column: str
) -> None:
    """Also in the rows of their own tenant."""
    with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "authenticated", ANA) as connection:
        connection.execute(sql.SQL("SELECT {} FROM holdfast.{}").format(sql.Identifier(column), sql.Identifier(table)))


def test_sealed_tokens_are_hidden_from_members(guarded: psycopg.Connection[Any]) -> None:
    """Even encrypted they are nobody's business."""
    with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "authenticated", ANA) as connection:
        connection.execute("SELECT sealed_token FROM holdfast.extraction_integrations")


@pytest.mark.case("P11")
@pytest.mark.parametrize("table", OPEN)
@pytest.mark.parametrize("write", ["DELETE FROM holdfast.{}", "INSERT INTO holdfast.{} DEFAULT VALUES", "TRUNCATE holdfast.{}"])
def test_members_write_nothing(guarded: psycopg.Connection[Any], table: str, write: str) -> None:
    """They act through the API, where it is checked and noted."""
    with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "authenticated", ANA) as connection:
        connection.execute(sql.SQL(write).format(sql.Identifier(table)))


@pytest.mark.parametrize("call", ["holdfast.reap()", "holdfast.enqueue('work')", "holdfast.cancel(gen_random_uuid())"])
def test_members_call_none_of_the_functions(guarded: psycopg.Connection[Any], call: str) -> None:
    """Only the service role recovers, enqueues and cancels by SQL."""
    with pytest.raises(errors.InsufficientPrivilege), acting_as(guarded, "authenticated", ANA) as connection:
        connection.execute(f"SELECT {call}".encode())


def test_the_service_role_reads_and_acts(guarded: psycopg.Connection[Any]) -> None:
    """All tenants' rows, and the functions."""
    with acting_as(guarded, "service_role") as connection:
        assert count(connection, "jobs") == 2
        assert connection.execute("SELECT args FROM holdfast.jobs LIMIT 1").fetchone() == ({"token": 1},)
        made = connection.execute("SELECT holdfast.enqueue('work', '{\"n\": 1}', tenant => 'acme')").fetchone()
        assert made is not None
        assert connection.execute("SELECT holdfast.cancel(%s, 'cron')", made).fetchone() == ("cancelled",)
        assert connection.execute("SELECT count(*) FROM holdfast.reap()").fetchone() == (0,)


def test_the_rule_is_asked_once_per_statement(guarded: psycopg.Connection[Any]) -> None:
    """Not once per row: it is a hashed subplan or a scan of its own, and the tenants' index serves what it finds."""
    with acting_as(guarded, "authenticated", ANA) as connection:
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN (COSTS OFF) SELECT id FROM holdfast.jobs"))
    assert "my_tenants" in plan or "SubPlan" in plan or "Subquery" in plan
    assert "Filter: (my_tenants" not in plan


def test_a_teams_own_rule_survives_the_next_migration(guarded: psycopg.Connection[Any], postgres_databases: Databases) -> None:
    """`holdfast.my_tenants()` is theirs once they have replaced it."""
    url = postgres_databases.create()
    run_apart(_migrate(url))
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(
            "CREATE OR REPLACE FUNCTION holdfast.my_tenants() RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT 'globex' $$"
        )
        for tenant, person in (("acme", ANA), ("globex", BOB)):
            _seed(owner, tenant, person)
        run_apart(_migrate(url))
        with acting_as(owner, "authenticated", ANA) as connection:
            assert connection.execute("SELECT DISTINCT tenant FROM holdfast.my_jobs").fetchall() == [("globex",)]
    postgres_databases.drop(url)


def test_a_database_in_supabases_shape_keeps_its_own_roles_functions_and_publication(postgres_databases: Databases) -> None:
    """The roles, `auth.uid()` and default privileges are there before; log lines join the realtime publication, once."""
    url = postgres_databases.create()
    with psycopg.connect(url, autocommit=True) as owner:
        for role in ("anon", "authenticated", "service_role"):
            owner.execute(f"DO $$ BEGIN CREATE ROLE {role} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$".encode())
        owner.execute("CREATE SCHEMA auth")
        owner.execute("GRANT USAGE ON SCHEMA auth TO authenticated")
        owner.execute(
            "CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS"
            " $$ SELECT (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid /* theirs */ $$"
        )
        owner.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA holdfast GRANT ALL ON TABLES TO anon, authenticated, service_role")
        owner.execute("CREATE PUBLICATION supabase_realtime")
        run_apart(_migrate(url))
        source = owner.execute("SELECT prosrc FROM pg_proc WHERE oid = 'auth.uid()'::regprocedure").fetchone()
        assert source is not None and "theirs" in source[0]
        published = owner.execute("SELECT tablename FROM pg_publication_tables WHERE pubname = 'supabase_realtime'").fetchall()
        assert published == [("logs",)]
        _seed(owner, "acme", ANA)
        _seed(owner, "globex", BOB)
        with acting_as(owner, "authenticated", ANA) as connection:
            assert count(connection, "jobs") == 1
        with pytest.raises(errors.InsufficientPrivilege), acting_as(owner, "authenticated", ANA) as connection:
            count(connection, "keys")
    postgres_databases.drop(url)


def test_functions_with_the_owners_rights_look_in_no_schema_of_their_caller(guarded: psycopg.Connection[Any]) -> None:
    """A table or function of the same name, made by whoever calls, is not found: each names the places where it looks."""
    rows = guarded.execute(
        "SELECT proname, coalesce(proconfig, '{}') FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND prosecdef"
    ).fetchall()
    assert {name for name, _ in rows} == {"my_tenants"}, "whatever else runs as its owner must be judged here"
    assert all(any(word.startswith("search_path=") and "public" not in word for word in settings) for _, settings in rows)


def test_views_for_members_are_read_with_the_members_own_rights(guarded: psycopg.Connection[Any]) -> None:
    """Or the rules of the rows would not hold for them: a view is read with the rights of its owner otherwise."""
    rows = guarded.execute(
        "SELECT relname, coalesce(reloptions, '{}') FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'v'"
    ).fetchall()
    assert len(rows) >= len(OPEN)
    assert [name for name, options in rows if not {"security_invoker=true", "security_invoker=on"} & set(options)] == []
