"""Connections to PostgreSQL that have gone silent: nothing comes back on them, and nobody is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, State
from holdfast.errors import StorageUnavailable
from holdfast.processes import reaper
from holdfast.store.postgres import connections
from tests.cases.steps import comes_to, ends, working
from tests.support.waiting import until
from tools.chaos_wire import Wire


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    made = await Wire(postgres_url).listen()
    yield made
    await made.close()


@pytest.fixture
async def behind_wire(wire: Wire) -> AsyncIterator[Holdfast]:
    """An application whose way to the database can go silent."""
    app = Holdfast(wire.url)
    yield app
    await app.aclose()


@pytest.fixture
async def beside(postgres_url: str) -> AsyncIterator[Holdfast]:
    """Somebody who sees the same database all the time."""
    app = Holdfast(postgres_url)
    yield app
    await app.aclose()


async def test_a_heartbeat_without_an_answer_is_repeated_on_another_connection(
    wire: Wire, behind_wire: Holdfast, beside: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is not lost while worker and database are well: nobody waits for as long as a statement may take."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 600.0)

    @behind_wire.task(lease=3)
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.enqueue()
    async with working(behind_wire, reap=False):
        first = (await comes_to(beside, job, State.RUNNING)).last_heartbeat_at

        async def beat_after(moment: object) -> object:
            found = (await beside.get(job.id)).last_heartbeat_at
            return found if found != moment else None

        await until(lambda: beat_after(first))
        assert wire.forget() >= 2
        last = (await beside.get(job.id)).last_heartbeat_at
        await until(lambda: beat_after(last), 60)
        wire.cut()


async def test_claims_and_outcomes_without_an_answer_are_repeated_on_another_connection(
    wire: Wire, behind_wire: Holdfast, beside: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After seconds, not after a minute; and the outcome counts once."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 3.0)
    go = asyncio.Event()

    @behind_wire.task
    async def work() -> str:
        await go.wait()
        return "done"

    job, later = await work.enqueue(), await work.enqueue()
    async with working(behind_wire, concurrency=1):
        await comes_to(beside, job, State.RUNNING)
        wire.forget()
        go.set()
        found = [await ends(beside, job), await ends(beside, later)]
        wire.cut()
    assert [(one.output, one.attempt) for one in found] == [("done", 1), ("done", 1)]


async def test_a_reaper_without_an_answer_asks_again_on_another_connection(
    wire: Wire, behind_wire: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of dead workers need not wait for as long as a statement may take."""
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 1.0)
    await behind_wire.reap()
    wire.forget()
    async with asyncio.timeout(40):
        with pytest.raises(StorageUnavailable):
            await behind_wire.reap()
    await behind_wire.reap()
    wire.cut()


async def test_a_pass_that_waits_for_a_silent_database_does_not_keep_its_process_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is cut short; one that ends by itself has its time."""
    monkeypatch.setattr(reaper, "LAST_PASS_SECONDS", 0.05)
    done = []

    async def waits() -> None:
        await asyncio.Event().wait()

    async def ends_soon() -> None:
        await asyncio.sleep(0)
        done.append("well")

    passes = [asyncio.create_task(waits()), asyncio.create_task(ends_soon())]
    await reaper.ended(*passes)
    assert done == ["well"] and passes[0].cancelled()
