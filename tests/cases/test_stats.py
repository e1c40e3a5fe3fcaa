"""How the queues are doing: throughput and percentiles of what workers did, orphans, and what one tenant sees."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import InvalidOption, StorageUnavailable
from holdfast.stats import percentiles_of
from holdfast.store.protocol import Tally
from holdfast.tally import Tallies, stage_label
from tests.conformance.scene import insert, start
from tests.support.waiting import until


async def test_what_workers_finished_is_told_per_minute(hf: Holdfast) -> None:
    """With how long jobs waited and ran, by queue."""

    @hf.task(queue="mail")
    async def work() -> None: ...

    await hf.enqueue_many([work.job() for _ in range(30)])
    await hf.run_worker(exit_when_idle=0.0)
    stats = await hf.stats()
    mail = stats.queues["mail"]
    assert stats.counts["completed"] == 30
    assert mail.finished_per_minute_5m is not None and 5.0 <= mail.finished_per_minute_5m <= 6.0
    assert mail.finished_per_minute_60m is not None and 0.4 <= mail.finished_per_minute_60m <= 0.5
    assert mail.wait is not None and 0 < mail.wait.p50 <= mail.wait.p90 <= mail.wait.p99
    assert mail.run is not None and mail.run.p50 < 5


async def test_a_worker_tells_what_it_did_while_it_works(database_url: str) -> None:
    """Not only at its end, which a killed one does not have."""
    hf = Holdfast(database_url, heartbeat=0.05)

    @hf.task(queue="mail")
    async def work() -> None: ...

    worker = asyncio.create_task(hf.run_worker())
    await work.enqueue()

    async def told() -> bool:
        return any(tally.name == "completed" and tally.n == 1 for tally in await hf.store.tally_totals())

    await until(told)
    await hf.aclose()
    await worker


async def test_what_needs_attention_is_summed_up(hf_at: Holdfast, clock: ManualClock) -> None:
    """Stuck, slow, orphaned, and the oldest wait of all queues."""
    await start(hf_at.store, queue="a", lease_seconds=10.0)
    await start(hf_at.store, queue="b", lease_seconds=1000.0, expected_seconds=5.0)
    await insert(hf_at.store, queue="c")
    clock.advance(100)
    stats = await hf_at.stats()
    assert (stats.stuck, stats.slow, stats.orphaned) == (1, 1, 1)
    assert stats.oldest_wait_seconds == pytest.approx(100)
    assert {name: queue.orphaned for name, queue in stats.queues.items()} == {"a": 0, "b": 0, "c": 1}


async def test_a_tenant_learns_nothing_of_others(hf: Holdfast) -> None:
    """Neither their jobs nor how fast the whole queue goes."""

    @hf.task(queue="mail")
    async def work() -> None: ...

    await work.options(tenant="zoe").enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    await work.options(tenant="zoe").enqueue()
    await work.options(tenant="abe").enqueue()
    stats = await hf.stats(tenant="abe")
    assert stats.counts == {"queued": 1, "running": 0, "completed": 0, "failed": 0, "cancelled": 0}
    mail = stats.queues["mail"]
    assert (mail.load.waiting, mail.orphaned, mail.finished_per_minute_5m, mail.wait, mail.run) == (1, 0, None, None, None)
    with pytest.raises(InvalidOption):
        await hf.stats(tenant="\x00")


def test_a_percentile_lies_in_the_bucket_of_its_job() -> None:
    """Straight between its bounds; what is above all of them counts as the highest."""
    tallies = [Tally("run", "q", "|0.1", 50), Tally("run", "q", "|1.0", 40), Tally("run", "q", "|+Inf", 10)]
    found = percentiles_of("run", [*tallies, Tally("run", "q", "|sum", 7.0), Tally("wait", "q", "|5.0", 99)])
    assert found is not None
    assert (found.p50, found.p90, found.p99) == (pytest.approx(0.1), pytest.approx(1.0), 14_400.0)
    assert percentiles_of("run", []) is None


class Moody:
    """A store that is away at first."""

    def __init__(self) -> None:
        self.away = True
        self.added: list[Tally] = []

    async def tally_add(self, tallies: Sequence[Tally]) -> None:
        if self.away:
            raise StorageUnavailable("away")
        self.added += tallies


async def test_what_could_not_be_counted_now_is_counted_later() -> None:
    """Together with what came after it, each counter once."""
    tallies, store = Tallies(), Moody()
    tallies.ended("mail", "completed", waited=0.2, seconds=0.3)
    await tallies.send(store)
    tallies.ended("mail", "completed", waited=-1.0, seconds=0.3)
    store.away = False
    await tallies.send(store)
    await tallies.send(store)
    counted = {(tally.name, tally.label): tally.n for tally in store.added}
    assert len(counted) == len(store.added)
    assert counted["completed", ""] == 2
    assert counted["wait", "|sum"] == pytest.approx(0.2)
    assert counted["run", "|0.5"] == 2


def test_a_stage_becomes_a_short_label() -> None:
    """Whatever a task calls it."""
    assert stage_label(None) == ""
    assert stage_label("a|b") == "a/b"
    assert len(stage_label("x" * 500)) == 40
