"""Batches: shared progress, and a last job that is made once, when all others have ended."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest

from holdfast import Abort, Holdfast
from holdfast.batch import end_batches
from holdfast.errors import InvalidOption, NotFound, StorageError
from holdfast.processes.scheduler import Scheduler
from holdfast.store import shared


class Tasks:
    def __init__(self, hf: Holdfast) -> None:
        self.summed: list[int] = []

        @hf.task(max_attempts=1)
        async def part(n: int, fails: bool = False) -> int:
            if fails:
                raise Abort("bad part")
            return n

        @hf.task
        async def total(n: int) -> None:
            self.summed.append(n)

        self.part, self.total = part, total


async def test_the_last_job_runs_when_all_have_ended_whatever_their_end(hf: Holdfast) -> None:
    """Completed, failed and cancelled ones count alike; one worker that returns when nothing is left has run it."""
    tasks = Tasks(hf)
    jobs = [tasks.part.job(n, fails=n == 3) for n in range(20)]
    batch = await hf.batch([*jobs, tasks.part.options(delay=3600).job(99)], then=tasks.total.job(7), tenant="acme", by="ana")
    assert (batch.total, batch.counts["queued"], batch.progress, batch.ended) == (21, 21, 0.0, False)
    late = next(job for job in await hf.jobs(batch=batch.id) if job.args["n"] == 99)
    assert {job.tenant for job in await hf.jobs(batch=batch.id)} == {"acme"}
    await hf.tenants.set("acme", plan="pro")
    await hf.run_worker(exit_when_idle=0.0)
    assert tasks.summed == []
    await hf.cancel(late.id)
    await hf.run_worker(exit_when_idle=0.0)
    assert tasks.summed == [7]
    after = await batch.refresh()
    assert after.ended and after.progress == 1.0
    assert after.counts == {"queued": 0, "running": 0, "completed": 19, "failed": 1, "cancelled": 1}
    assert after.then_id is not None
    last = await hf.get(after.then_id)
    assert (last.state, last.tenant, last.meta, last.batch) == ("completed", "acme", {"batch": batch.id}, None)


async def test_many_who_see_the_end_make_one_last_job(hf_at: Holdfast) -> None:
    """Eight look at the same moment, and again."""
    tasks = Tasks(hf_at)
    batch = await hf_at.batch([tasks.part.job(1)], then=tasks.total.job(1))
    (job,) = await hf_at.jobs(batch=batch.id)
    assert await end_batches(hf_at.store) == []
    await hf_at.cancel(job.id)
    ended = await asyncio.gather(*(end_batches(hf_at.store) for _ in range(8)))
    assert [found for found in ended if found] == [[batch.id]]
    assert await end_batches(hf_at.store) == []
    assert len(await hf_at.jobs(task="total")) == 1


async def test_whoever_dies_before_the_last_job_is_made_leaves_it_to_the_next(
    hf_at: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is ended and its last job made together or not at all: an empty-handed death in between undoes both."""
    tasks = Tasks(hf_at)
    batch = await hf_at.batch([tasks.part.job(1)], then=tasks.total.job(1))
    await hf_at.cancel((await hf_at.jobs(batch=batch.id))[0].id)
    with monkeypatch.context() as patched:
        patched.setattr(hf_at.store, "insert_statement", lambda jobs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await end_batches(hf_at.store)
    assert not (await batch.refresh()).ended
    await Scheduler(hf_at).one_pass()
    assert (await batch.refresh()).ended
    assert len(await hf_at.jobs(task="total")) == 1


async def test_a_retry_by_hand_keeps_an_open_batch_open_and_leaves_an_ended_one_ended(hf: Holdfast) -> None:
    """Before the end the retried job counts again; after it the last job is not made a second time."""
    tasks = Tasks(hf)
    later = tasks.part.options(delay=3600)
    batch = await hf.batch([tasks.part.job(1, fails=True), later.job(2)], then=tasks.total.job(5))
    await hf.run_worker(exit_when_idle=0.0)
    (failed,) = await hf.jobs(batch=batch.id, state="failed")
    (waiting,) = await hf.jobs(batch=batch.id, state="queued")
    await hf.retry(failed.id)
    await hf.cancel(waiting.id)
    assert await end_batches(hf.store) == []
    await hf.run_worker(exit_when_idle=0.0)
    assert tasks.summed == [5]
    await hf.retry(failed.id)
    await hf.run_worker(exit_when_idle=0.0)
    assert tasks.summed == [5]
    assert (await batch.refresh()).ended


async def test_a_batch_without_jobs_ends_at_once(hf: Holdfast) -> None:
    """Nothing is all of nothing."""
    tasks = Tasks(hf)
    batch = await hf.batch([], then=tasks.total.job(0))
    await hf.run_worker(exit_when_idle=0.0)
    assert tasks.summed == [0]
    assert (await batch.refresh()).progress == 1.0


async def test_a_batch_in_a_transaction_that_rolls_back_never_was(hf: Holdfast) -> None:
    """Neither its jobs nor itself; one that commits is there with all of them."""
    tasks = Tasks(hf)
    jobs = [tasks.part.job(n) for n in range(3)]
    with pytest.raises(RuntimeError):
        async with hf.transaction() as tx:
            await hf.batch(jobs, then=tasks.total.job(1), tx=tx)
            raise RuntimeError
    assert await hf.batches.list() == [] == await hf.jobs()
    async with hf.transaction() as tx:
        batch = await hf.batch(jobs, then=tasks.total.job(1), tx=tx)
    assert (batch.total, (await batch.refresh()).counts["queued"]) == (3, 3)


def test_a_sync_program_makes_a_batch_on_its_own_connection(database_url: str) -> None:
    """With psycopg or sqlite3, in the caller's thread and transaction; and without one."""
    hf = Holdfast(database_url)
    tasks = Tasks(hf)
    jobs = [tasks.part.job(n) for n in range(3)]
    is_file = database_url.startswith("sqlite")
    connection: Any = sqlite3.connect(database_url[10:]) if is_file else psycopg.connect(database_url)
    batch = hf.batch_sync(jobs, then=tasks.total.job(1), tx=connection)
    with pytest.raises(NotFound):
        hf.batches.get_sync(batch.id)
    connection.commit()
    connection.close()
    assert hf.batches.get_sync(batch.id).counts["queued"] == 3
    assert hf.batch_sync(jobs).total == 3
    hf.close()


async def test_a_job_that_is_active_already_stays_outside(hf: Holdfast) -> None:
    """A unique key that meets an active job adds nothing to the batch."""
    tasks = Tasks(hf)
    await tasks.part.options(unique="one").enqueue(1)
    batch = await hf.batch([tasks.part.options(unique="one").job(1), tasks.part.job(2)])
    assert (batch.total, batch.then_id) == (1, None)


async def test_batches_are_seen_by_their_own_tenant(hf: Holdfast) -> None:
    """And take no jobs of another one; what is no job is refused."""
    tasks = Tasks(hf)
    batch = await hf.batch([tasks.part.job(1)], tenant="acme")
    with pytest.raises(NotFound):
        await hf.batches.get(batch.id, tenant="zeta")
    assert await hf.jobs(batch=batch.id, tenant="zeta") == []
    assert [one.id for one in await hf.batches.list(tenant="acme")] == [batch.id]
    with pytest.raises(InvalidOption, match="cannot take a job of zeta"):
        await hf.batch([tasks.part.options(tenant="zeta").job(1)], tenant="acme")
    with pytest.raises(InvalidOption, match=r"task\.job"):
        await hf.batch([tasks.part])  # type: ignore[list-item]
    assert len(await hf.batches.list()) == 1


async def test_whether_a_large_batch_has_ended_is_one_look_into_an_index(hf_at: Holdfast) -> None:
    """Of 12,000 jobs, with statistics of a time at which all were waiting, when a plan would rather read the table."""
    tasks = Tasks(hf_at)
    batch = await hf_at.batch([tasks.part.job(n) for n in range(12_000)], then=tasks.total.job(1))
    assert (batch.total, batch.counts["queued"]) == (12_000, 12_000)
    is_file = hf_at.store.name == "sqlite"
    known = (shared.SQLITE if is_file else shared.POSTGRES)["batch_all_ended"]
    async with hf_at.transaction() as tx:
        if not is_file:
            await tx.execute("ANALYZE holdfast.jobs")
        plan = str(await tx.fetch(("EXPLAIN QUERY PLAN " if is_file else "EXPLAIN ") + known, 100))
    assert "jobs_batch" in plan and "Seq Scan on jobs" not in plan and "SCAN j" not in plan, plan


async def test_the_database_away_while_a_batch_is_made_leaves_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the batch is written last, in the same transaction as its jobs."""
    tasks = Tasks(hf)

    def away(*args: Any) -> Any:
        raise StorageError("away")

    with monkeypatch.context() as patched:
        patched.setattr(hf.store, "shared_statement", away)
        with pytest.raises(StorageError):
            await hf.batch([tasks.part.job(1)])
    assert await hf.jobs() == []
