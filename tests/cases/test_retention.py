"""Retention of everything: one process at a time does it, what is old goes, and one can see it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.batch import end_batches
from holdfast.clock import ManualClock
from holdfast.doctor import examine
from holdfast.people.sessions import Sessions
from holdfast.processes.reaper import Reaper
from holdfast.prune import RETENTION, prune_if_due
from holdfast.roles import Role


@pytest.mark.case("D34")
async def test_many_processes_share_the_work_of_forgetting(hf_at: Holdfast, clock: ManualClock) -> None:
    """Of eight that ask at once one does it, and none again for ten minutes; paused, nobody does."""
    did = await asyncio.gather(*(prune_if_due(hf_at.store, hf_at.settings) for _ in range(8)))
    assert [one is not None for one in did].count(True) == 1
    clock.advance(599)
    assert await prune_if_due(hf_at.store, hf_at.settings) is None
    clock.advance(1)
    assert await prune_if_due(hf_at.store, hf_at.settings) is not None
    await hf_at.schedules.pause(RETENTION)
    clock.advance(days=1)
    assert await prune_if_due(hf_at.store, hf_at.settings) is None
    assert (await hf_at.schedules.resume(RETENTION)).next_at == clock.now() + timedelta(seconds=600)
    await hf_at.schedules.run_now(RETENTION)
    _, gone = await Reaper(hf_at.store, hf_at.settings).one_pass(shared=True)
    assert gone == 0
    shown = await hf_at.schedules.get(RETENTION)
    assert shown.last_at == clock.now() and shown.result is not None and shown.result["jobs"] == 0


async def test_everything_that_grows_is_forgotten(hf_at: Holdfast, clock: ManualClock) -> None:
    """Jobs, events, logs, workers, idempotency keys, rate buckets, sessions and batches, each after its own time."""

    @hf_at.task
    async def part() -> None: ...

    hf_at.limit("pings", user=5)
    await hf_at.rate.take("pings", user="ana")
    await hf_at.idempotent("k", scope="s", body="a").__aenter__()
    await Sessions(hf_at).begin(tenant="acme", role=Role.VIEWER, actor="ana", key_id=None)
    batch = await hf_at.batch([part.job()])
    await hf_at.cancel((await hf_at.jobs(batch=batch.id))[0].id)
    assert await end_batches(hf_at.store) == [batch.id]
    clock.advance(days=91)
    assert sum((await hf_at.prune()).values()) > 0
    (counts,) = await hf_at.store.shared("size_counts", 10)
    assert {name: count for name, count in counts.items() if count} == {}


async def test_an_open_batch_is_never_forgotten(hf_at: Holdfast, clock: ManualClock) -> None:
    """However long its last job waits; what has ended of it goes, and the batch still ends."""

    @hf_at.task
    async def part(n: int) -> None: ...

    batch = await hf_at.batch([part.job(1), part.options(delay=86_400 * 200).job(2)])
    await hf_at.cancel(next(job.id for job in await hf_at.jobs(batch=batch.id) if job.args["n"] == 1))
    clock.advance(days=100)
    await hf_at.prune()
    after = await batch.refresh()
    assert (after.ended, after.total, after.counts["cancelled"], after.progress) == (False, 2, 0, 0.5)


async def test_doctor_shows_how_much_there_is_and_what_is_wrong_with_schedules(hf: Holdfast) -> None:
    """Sizes, the last retention, a schedule that made no job at its last tick, and a retention that is paused."""

    @hf.task
    async def part() -> None: ...

    await part.enqueue()
    await hf.schedules.set("tick", part, 60, tenant="acme")
    checks = {check.name: check for check in await examine(hf)}
    assert checks["sizes"].message.endswith("1 jobs, 1 events") and " MB: " in checks["sizes"].message
    assert (checks["schedules"].status, checks["retention"].status) == ("ok", "ok")
    async with hf.transaction() as tx:
        table = "holdfast_schedules" if hf.store.name == "sqlite" else "holdfast.schedules"
        await tx.execute(f"UPDATE {table} SET error = 'task_unknown: gone' WHERE name = 'tick'")
    await hf.schedules.pause(RETENTION)
    checks = {check.name: check for check in await examine(hf)}
    assert checks["schedules"].status == "error" and "tick of acme: task_unknown: gone" in checks["schedules"].message
    assert checks["retention"].status == "warning" and "paused" in checks["retention"].message
