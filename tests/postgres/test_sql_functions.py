"""`holdfast.enqueue`, `holdfast.cancel` and `holdfast.reap`: the same life of a job, driven from SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.ids import first_job_id_at
from tests.cases.steps import drain

CALLED = "SELECT holdfast.enqueue('add', '{\"a\": 2, \"b\": 3}', tenant => 'acme', tags => ARRAY['x'])"


@pytest.fixture
async def hf(postgres_url: str) -> Any:
    app = Holdfast(postgres_url)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    yield app
    await app.aclose()


def call(url: str, statement: str, *args: Any) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode(), args).fetchone()
        return None if row is None else row[0]


async def test_a_job_enqueued_by_sql_is_run_like_any_other(hf: Holdfast, postgres_url: str) -> None:
    """Task, arguments, tenant and tags are those of the call."""
    job_id = str(call(postgres_url, CALLED))
    await drain(hf)
    job = await hf.get(job_id)
    assert (job.state, await job.result(), job.tenant, job.tags) == (
        State.COMPLETED,
        5,
        "acme",
        ["x"],
    )


async def test_a_job_enqueued_by_sql_has_the_same_columns_as_one_enqueued_by_python(hf: Holdfast, postgres_url: str) -> None:
    """One statement makes both; what differs is who enqueued it, and ids and times."""
    by_python = await hf.tasks["add"].options(tenant="acme", tags=["x"]).enqueue(2, 3)
    by_sql = str(call(postgres_url, CALLED))
    own = "'id', 'seq', 'run_id', 'run_at', 'created_at', 'updated_at', 'enqueued_by'"
    rest = f"SELECT to_jsonb(j) - ARRAY[{own}] FROM holdfast.jobs j WHERE id = %s"
    assert call(postgres_url, rest, by_sql) == call(postgres_url, rest, by_python.id)


async def test_ids_made_by_sql_sort_by_time_among_those_of_python(hf: Holdfast, postgres_url: str) -> None:
    """Lists and retention go by the id."""
    made = str(call(postgres_url, CALLED))
    now = datetime.now(UTC)
    assert first_job_id_at(now - timedelta(minutes=5)) < made < first_job_id_at(now + timedelta(minutes=5))
    assert made[14] == "7"


async def test_a_unique_key_is_shared_by_sql_and_python(hf: Holdfast, postgres_url: str) -> None:
    """The second one gets the first one's id."""
    job = await hf.tasks["add"].options(unique="k").enqueue(1, 1)
    again = call(postgres_url, "SELECT holdfast.enqueue('add', '{\"a\": 1, \"b\": 1}', unique_key => 'k')")
    assert str(again) == job.id


async def test_an_enqueue_by_sql_rolls_back_with_its_transaction(hf: Holdfast, postgres_url: str) -> None:
    """The job exists if and only if the transaction commits."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(CALLED.encode())
        connection.rollback()
    assert await hf.jobs() == []


@pytest.mark.parametrize(
    "wrong",
    ["holdfast.enqueue('')", "holdfast.enqueue('add', '[1]')", "holdfast.enqueue('add', max_attempts => 0)"],
)
async def test_nonsense_is_refused_by_sql_too(hf: Holdfast, postgres_url: str, wrong: str) -> None:
    """With a sentence, and nothing is written."""
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        call(postgres_url, f"SELECT {wrong}")
    assert await hf.jobs() == []


async def test_a_job_is_cancelled_by_sql(hf: Holdfast, postgres_url: str) -> None:
    """At once, as long as it waits."""
    job = await hf.tasks["add"].enqueue(1, 1)
    assert call(postgres_url, "SELECT holdfast.cancel(%s, 'cron')", job.id) == "cancelled"
    assert (await hf.get(job.id)).state is State.CANCELLED


async def test_recovery_by_sql_is_the_reapers_own(hf: Holdfast, postgres_url: str) -> None:
    """An expired lease is requeued with its event and log line, once."""
    job = await hf.tasks["add"].enqueue(1, 1)
    await hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["add"], limit=1)
    # A short lease: after its start a server gives those who live as much time as their lease has.
    expire = "UPDATE holdfast.jobs SET lease_expires_at = now() - interval '1 second', lease_seconds = 0.001 RETURNING 1"
    call(postgres_url, expire)
    assert call(postgres_url, "SELECT state FROM holdfast.reap()") == "queued"
    assert call(postgres_url, "SELECT count(*) FROM holdfast.reap()") == 0
    assert [event.type for event in await hf.events(job.id)] == ["reaper:requeued"]
    runs = await hf.runs(job.id)
    assert "automatically retrying" in (await hf.logs(runs[-1].run_id))[-1].message
