"""A tenant's data: exported whole, without secrets; erased whole, and nobody else's."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import Holdfast, current
from holdfast.errors import JobConflict
from holdfast.extraction.app import Extraction
from holdfast.job import State
from tests.cases.steps import comes_to, drain, working


async def lived(hf: Holdfast) -> None:
    """Two tenants that have used everything there is to use without much ado."""

    @hf.task
    async def work(n: int) -> None:
        current().log.info("at work", n=n)
        if n == 0:
            raise ValueError("no")

    for tenant in ("acme", "globex"):
        await hf.tenants.set(tenant, plan="pro")
        await hf.members.add(tenant, f"ana@{tenant}", role="owner")
        await hf.keys.create(tenant=tenant, role="member", name="ci")
        await hf.projects.create(tenant, "web", name="Web")
        for n in range(3):
            await work.options(tenant=tenant, max_attempts=1).enqueue(n)
    await drain(hf)


async def exported(hf: Holdfast, tenant: str) -> Counter[str]:
    return Counter([row["table"] async for row in hf.tenants.export(tenant)])


async def test_an_export_has_every_row_of_the_tenant_and_of_nobody_else(hf: Holdfast) -> None:
    """Jobs, logs, events, members, keys, projects and the tenant itself."""
    await lived(hf)
    rows = [row async for row in hf.tenants.export("acme")]
    counts = Counter(row["table"] for row in rows)
    assert {table: counts[table] for table in ("jobs", "members", "keys", "projects", "tenants")} == {
        "jobs": 3,
        "members": 1,
        "keys": 1,
        "projects": 1,
        "tenants": 1,
    }
    assert counts["logs"] >= 3 and counts["events"] >= 1
    assert "globex" not in str(rows)


async def test_no_secret_is_exported(hf: Holdfast) -> None:
    """Not even the hash of a key."""
    await lived(hf)
    keys = [row["row"] async for row in hf.tenants.export("acme") if row["table"] == "keys"]
    assert keys and all("hash" not in key for key in keys)


async def test_an_export_of_many_rows_is_read_in_pages_and_complete(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row once."""
    monkeypatch.setattr("holdfast.tenant_data.PAGE", 2)
    await lived(hf)
    ids = [str(row["row"]["id"]) async for row in hf.tenants.export("acme") if row["table"] == "jobs"]
    assert len(ids) == len(set(ids)) == 3


async def test_an_erased_tenant_leaves_nothing_and_others_keep_everything(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the tables of an extension; only the event of the erasure stays."""
    monkeypatch.setattr("holdfast.tenant_data.PAGE", 2)
    Extraction(hf)
    await hf.migrate()
    await lived(hf)
    before = await exported(hf, "globex")
    erased = await hf.tenants.erase("acme", by="ana")
    assert sum(erased.rows.values()) >= 10
    assert await exported(hf, "acme") == Counter()
    assert await exported(hf, "globex") == before
    assert next(event.type for event in await hf.events()) == "tenant.erased"


async def test_a_tenant_with_a_running_job_is_not_erased(hf: Holdfast) -> None:
    """It would write on; nothing is deleted."""

    @hf.task(cancel="immediate")
    async def long() -> None:
        await asyncio.Event().wait()

    job = await long.options(tenant="acme").enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        with pytest.raises(JobConflict, match="is running"):
            await hf.tenants.erase("acme")
        await hf.cancel(job.id)
        await comes_to(hf, job, State.CANCELLED)
