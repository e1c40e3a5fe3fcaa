"""The doctor of a PostgreSQL: each ailment is found, with the command that mends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast import doctor_postgres as doctor
from holdfast.doctor_check import Check
from holdfast.errors import StorageError
from tests.support.waiting import until


@pytest.fixture
async def hf(postgres_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(postgres_url)
    yield app
    await app.aclose()


async def says(hf: Holdfast, name: str) -> Check:
    return next(check for check in await doctor.examine_postgres(hf) if check.name == name)


async def test_a_healthy_database_has_nothing_to_mend(hf: Holdfast) -> None:
    """Every check is green on a fresh database."""
    assert {check.status for check in await doctor.examine_postgres(hf)} == {"ok"}


async def test_a_transaction_that_is_open_for_long_is_named(
    hf: Holdfast, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its program and the command that ends it."""
    monkeypatch.setattr(doctor, "OLD_TRANSACTION_SECONDS", 0)
    with psycopg.connect(postgres_url, application_name="a report") as forgotten:
        pid = forgotten.execute("SELECT pg_backend_pid()").fetchone()
        found = await says(hf, "transactions")
    assert pid is not None
    assert "a report" in found.message and found.advice == f"SELECT pg_terminate_backend({pid[0]});"


async def test_an_invalid_index_is_named(hf: Holdfast, postgres_url: str) -> None:
    """It slows every write and helps no read."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'holdfast.events_at'::regclass")
    assert (await says(hf, "indexes")).advice == "REINDEX INDEX CONCURRENTLY holdfast.events_at;"


async def test_lost_autovacuum_settings_are_named(hf: Holdfast, postgres_url: str) -> None:
    """As after a restore by hand, or a table copied with CREATE TABLE AS."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("ALTER TABLE holdfast.jobs RESET (autovacuum_vacuum_scale_factor)")
    assert (await says(hf, "autovacuum")).advice.startswith("ALTER TABLE holdfast.jobs SET")


async def test_many_dead_rows_are_named(hf: Holdfast, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the table and its VACUUM."""
    monkeypatch.setattr(doctor, "DEAD_ROWS_MIN", 10)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("ALTER TABLE holdfast.plans SET (autovacuum_enabled = false)")
        for _ in range(10):
            admin.execute("UPDATE holdfast.plans SET weight = weight")
        admin.execute("SELECT pg_stat_force_next_flush()")

    async def found() -> Check | None:
        check = await says(hf, "dead rows")
        return check if check.status == "warning" else None

    assert (await until(found)).advice == "VACUUM (ANALYZE) holdfast.plans;"


async def jobs_as_reader(url: str) -> list[Any]:
    reader = Holdfast(url.replace("postgres@", "holdfast_test_reader@", 1))
    try:
        return await reader.jobs()
    finally:
        await reader.aclose()


async def test_a_user_from_whom_row_level_security_hides_everything_is_told_so(hf: Holdfast, postgres_url: str) -> None:
    """Else its worker would just find no work, for ever."""
    await hf.migrate(rls=True)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS holdfast_test_reader")
        admin.execute("CREATE ROLE holdfast_test_reader LOGIN")
        admin.execute("GRANT USAGE ON SCHEMA holdfast TO holdfast_test_reader")
        admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO holdfast_test_reader")
        try:
            with pytest.raises(StorageError, match=r"Row level security hides .*GRANT service_role TO holdfast_test_reader"):
                await jobs_as_reader(postgres_url)
            admin.execute("GRANT service_role TO holdfast_test_reader")
            assert await jobs_as_reader(postgres_url) == []
        finally:
            admin.execute("DROP OWNED BY holdfast_test_reader")
            admin.execute("DROP ROLE holdfast_test_reader")
