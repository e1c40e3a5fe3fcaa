"""A role that may create objects in `public` cannot have its own functions and operators called by us, as us."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.tenants import STATEMENTS
from holdfast.store.shared import POSTGRES, caller_statement_for_postgres
from tests.cases.steps import drain
from tests.conformance.scene import LEASE, append, claim, complete, line, new_job, start

HOSTILE = """
CREATE ROLE hostile NOLOGIN;
GRANT CREATE, USAGE ON SCHEMA public TO hostile;
SET ROLE hostile;
DO $do$
DECLARE
    v_types text[] := ARRAY['text', 'text[]', 'uuid', 'uuid[]', 'integer', 'integer[]', 'bigint', 'numeric', 'double precision',
                            'boolean', 'timestamptz', 'interval', 'jsonb', 'json', 'tid', 'tid[]'];
    v_body text := 'RETURNS %s LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION ''hijacked by %s''; END$$';
    v_no integer := 0;
    v_name text; v_left text; v_right text;
BEGIN
    FOREACH v_left IN ARRAY v_types LOOP
        FOREACH v_name IN ARRAY ARRAY['cardinality', 'array_agg', 'unnest', 'count', 'sum', 'min', 'max', 'format',
                                      'power', 'ceil', 'concat', 'jsonb_build_object', 'jsonb_build_array', 'to_jsonb',
                                      'array_length', 'pg_column_size', 'quote_ident', 'chr', 'hashtext'] LOOP
            IF to_regprocedure(format('pg_catalog.%I(%s)', v_name, v_left)) IS NULL THEN
                EXECUTE format('CREATE FUNCTION public.%I(%s) ' || v_body, v_name, v_left, 'integer', v_name);
            END IF;
        END LOOP;
        FOREACH v_right IN ARRAY v_types LOOP
            v_no := v_no + 1;
            EXECUTE format('CREATE FUNCTION public.hijack_%s(%s, %s) ' || v_body,
                           v_no, v_left, v_right, 'boolean', v_left || ' and ' || v_right);
            FOREACH v_name IN ARRAY ARRAY['||', '->', '->>', '+', '-', '*', '/', '=', '<>', '<', '>', '<=', '>=', '~~'] LOOP
                IF to_regoperator(format('pg_catalog.%s(%s,%s)', v_name, v_left, v_right)) IS NULL THEN
                    EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.hijack_%s, LEFTARG = %s, RIGHTARG = %s)',
                                   v_name, v_no, v_left, v_right);
                END IF;
            END LOOP;
            FOREACH v_name IN ARRAY ARRAY['hashtextextended', 'array_position', 'mod', 'substr', 'format', 'jsonb_build_object',
                                          'power', 'make_interval', 'date_trunc', 'array_append', 'array_cat', 'left', 'concat',
                                          'array_length', 'pg_try_advisory_xact_lock', 'pg_advisory_xact_lock'] LOOP
                IF to_regprocedure(format('pg_catalog.%I(%s,%s)', v_name, v_left, v_right)) IS NULL THEN
                    EXECUTE format('CREATE FUNCTION public.%I(%s, %s) ' || v_body, v_name, v_left, v_right, 'integer', v_name);
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
END $do$;
RESET ROLE;
"""
"""Every operator on two of our types that pg_catalog lacks, and functions that match better than those that take anything."""


@pytest.fixture
def hostile_url(postgres_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(HOSTILE.replace("CREATE ROLE hostile NOLOGIN;", _make_role()).encode())
        yield postgres_url
        connection.execute(b"DROP OWNED BY hostile")


def _make_role() -> str:
    return "DO $$BEGIN CREATE ROLE hostile NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$;"


@pytest.mark.parametrize("tried", ["cardinality(ARRAY['a'])", "1 || ARRAY[1]"])
def test_the_hostile_objects_would_be_called(hostile_url: str, tried: str) -> None:
    """Without precautions: the tests below can fail."""
    with psycopg.connect(hostile_url) as connection, pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
        connection.execute(f"SELECT {tried}".encode())


async def test_a_jobs_whole_life_calls_nothing_in_public(hostile_url: str) -> None:
    """Enqueue in every way, claim, heartbeat, log, step, complete, retry, cancel, reap, limits, order, statistics, pruning."""
    hf = Holdfast(hostile_url)

    @hf.task(max_attempts=1)
    async def work(n: int) -> int:
        if n == 3:
            raise ValueError("no")
        return n

    await hf.tenants.set("acme", plan="pro")
    await hf.queues.set("mail", limit=5)
    jobs = await hf.enqueue_many([work.options(tenant="acme", order="k").job(n) for n in range(5)])
    await hf.enqueue_many([work.options(tenant="acme").job(n) for n in range(20, 40)])
    twice = [await work.options(unique="u", queue="mail", delay=0.01).enqueue(9) for _ in range(2)]
    with psycopg.connect(hostile_url) as connection:
        await work.options(tenant="acme", unique="v", tx=connection).enqueue(7)
        connection.commit()
    await drain(hf)
    assert twice[0].id == twice[1].id and (await hf.get(jobs[3].id)).state is State.FAILED
    await hf.retry(jobs[3].id)
    await hf.cancel(jobs[3].id)
    await hf.stats()
    await hf.aclose()


async def test_what_a_run_and_the_reaper_write_calls_nothing_in_public(hostile_url: str) -> None:
    """The verbs of the store, and the functions that others call by SQL."""
    store = PostgresStore(hostile_url)
    run = await start(store, order_key="k", tenant="acme", lease_seconds=0.001, max_attempts=1, unique_key="u")
    await append(store, run, line(run, 1, metadata={"a": 1}))
    await store.step_save_if_leased(run.id, run.run_id, "s", "f", "1")
    await store.progress_set_if_leased(run.id, run.run_id, 0.5, "x")
    with psycopg.connect(hostile_url, autocommit=True) as connection:
        reaped = connection.execute("SELECT id::text, state FROM holdfast.reap()").fetchall()
        made = connection.execute("SELECT holdfast.enqueue('send', '{}', tenant => 'acme', tags => ARRAY['x'])").fetchone()
        assert made is not None
        assert connection.execute("SELECT holdfast.cancel(%s)", [made[0]]).fetchone() == ("cancelled",)
    assert reaped in ([], [(run.id, "failed")])
    job = new_job(tenant="acme", lease_seconds=LEASE)
    await store.job_insert_many([job])
    for claimed in (await claim(store, 5)).jobs:
        await complete(store, claimed)
    await store.order_heal()
    await store.close()


async def test_policies_call_nothing_in_public(hostile_url: str) -> None:
    """Made while the hostile objects are there, and asked by a member."""
    store = PostgresStore(hostile_url)
    assert await store.rows_guard()
    await store.job_insert_many([new_job(tenant="acme")])
    with psycopg.connect(hostile_url) as connection:
        connection.execute(
            "INSERT INTO holdfast.members (tenant, user_id, role, added_at) VALUES"
            " ('acme', '00000000-0000-4000-8000-000000000001', 'admin', now())"
        )
        connection.execute("SET LOCAL ROLE authenticated")
        connection.execute("""SET LOCAL "request.jwt.claims" = '{"sub": "00000000-0000-4000-8000-000000000001"}'""")
        assert connection.execute("SELECT count(*) FROM holdfast.my_jobs").fetchone() == (1,)
        assert connection.execute("SELECT auth.uid()::text LIKE '%1'").fetchone() == (True,)
        connection.rollback()
    await store.schema_migrate()
    await store.close()


def test_every_function_of_ours_has_a_path_of_its_own(postgres_url: str) -> None:
    """Set for the call, or its body was parsed when it was made."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND prosqlbody IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM unnest(proconfig) AS c WHERE c LIKE 'search_path=%')"
        ).fetchall()
    assert found == []


CALLED = re.compile("idempotency_(?!prune)|budget_used_up|batch_insert|webhook_targets")
"""Shared statements that are run on callers' connections."""
SYNTAX = {"coalesce", "greatest", "least", "nullif", "extract", "exists", "values", "in", "any", "all", "array", "cast", "row"}


def test_no_statement_calls_or_operates_in_public(hostile_url: str) -> None:
    """Each statement is made the body of a function, whose dependencies the server notes: none lies in `public`."""
    callers = {f"{name} for callers": caller_statement_for_postgres(name, ()).sql for name in POSTGRES if CALLED.match(name)}
    wrong = []
    with psycopg.connect(hostile_url, autocommit=True) as connection:
        known = {
            row[0]
            for row in connection.execute(
                "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
            )
        }
        for name, sql in {**STATEMENTS, **POSTGRES, **callers}.items():
            bare = re.sub(r"'[^']*'", "''", re.sub(r"--[^\n]*", "", sql))
            calls = set(re.findall(r"(?<![.\w])([a-z_][a-z0-9_]*)\(", bare)) & known - SYNTAX
            if "unnest" in calls and "unnest($1::uuid[], $2::uuid[])" in bare:
                calls.discard("unnest")  # with several arguments it is syntax, and the server's own
            if calls:
                wrong.append((name, sorted(calls)))
            if name.startswith("adopt_") or "{" in sql or "/*" in sql or sql.rstrip().endswith("("):
                continue  # their tables are made when something is adopted; the others are parts of statements
            try:
                connection.execute(f"PREPARE probe AS {sql}".encode())
            except psycopg.Error as error:
                wrong.append((name, str(error).splitlines()[0]))
                continue
            row = connection.execute(
                "SELECT array_to_string(parameter_types::text[], ', ') FROM pg_prepared_statements WHERE name = 'probe'"
            ).fetchone()
            connection.execute("DEALLOCATE probe")
            assert row is not None
            answers = re.search(r"\bRETURNING\b|^\s*(WITH|SELECT)", bare) and name != "tally_add"
            returning = "SETOF record" if answers else "void"
            try:
                connection.execute(
                    f"CREATE FUNCTION public.probe({row[0]}) RETURNS {returning} LANGUAGE sql BEGIN ATOMIC {sql}; END".encode()
                )
            except psycopg.Error as error:
                wrong.append((name, str(error).splitlines()[0]))
                continue
            met = connection.execute(
                "SELECT pg_describe_object(refclassid, refobjid, 0) FROM pg_depend WHERE classid = 'pg_proc'::regclass"
                f" AND objid = 'public.probe({row[0]})'::regprocedure AND refobjid IN"
                " (SELECT oid FROM pg_operator WHERE oprnamespace = 'public'::regnamespace"
                "  UNION SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace)"
            ).fetchall()
            if met:
                wrong.append((name, [row[0] for row in met]))
            connection.execute(f"DROP FUNCTION public.probe({row[0]})".encode())
    assert wrong == [], "\n".join(map(str, wrong))
