"""Machines that are processes of this host: real ones, started on demand, adopted, ended, and none left over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast, State
from holdfast.machines.local import LocalProvider, from_settings
from holdfast.machines.protocol import MachineState, StartRefused
from tests.support.local_machines import pid_of, sleeping_machines
from tests.support.processes import Processes, runs
from tests.support.waiting import until

APP = "tests.apps.bursts:hf"
PATIENCE_SECONDS = 60


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[LocalProvider]:
    """Whose machines only sleep."""
    async with sleeping_machines(tmp_path / "machines") as made:
        yield made


async def test_a_pool_machine_is_stopped_and_started_again(provider: LocalProvider, tmp_path: Path) -> None:
    """Its process ends, its name stays; a second start while it runs does nothing."""
    await provider.create("pool-1", "pool")
    first = pid_of(tmp_path / "machines", "pool-1")
    await provider.create("pool-1", "pool")
    await provider.start("pool-1")
    assert pid_of(tmp_path / "machines", "pool-1") == first
    await provider.stop("pool-1")
    await until(lambda: not runs(first), PATIENCE_SECONDS)
    [machine] = await provider.list()
    assert (machine.state, machine.started_at) == (MachineState.STOPPED, None)
    await provider.start("pool-1")
    [machine] = await provider.list()
    assert machine.state is MachineState.RUNNING and pid_of(tmp_path / "machines", "pool-1") != first


async def test_a_burst_machine_that_ends_is_gone(provider: LocalProvider, tmp_path: Path) -> None:
    """It has removed itself; to destroy it then is no error."""
    await provider.create("burst-1", "burst")
    pid = pid_of(tmp_path / "machines", "burst-1")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not runs(pid), PATIENCE_SECONDS)
    assert await provider.list() == []
    await provider.destroy("burst-1")
    with pytest.raises(StartRefused):
        await provider.start("burst-1")


async def test_another_parent_sees_and_ends_the_same_machines(provider: LocalProvider, tmp_path: Path) -> None:
    """What one has started, the next one adopts; a process that merely has the same number is another one."""
    await provider.create("pool-1", "pool")
    pid = pid_of(tmp_path / "machines", "pool-1")
    heir = LocalProvider(["sleep", "600"], tmp_path / "machines")
    assert [machine.state for machine in await heir.list()] == [MachineState.RUNNING]
    path = tmp_path / "machines" / "pool-1.json"
    kept = path.read_bytes()
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(kept), "born": "1"}))
    assert [machine.state for machine in await heir.list()] == [MachineState.STOPPED]
    path.write_bytes(kept)
    await heir.destroy("pool-1")
    assert not runs(pid) and await provider.list() == []


async def test_what_cannot_be_started_is_refused_in_words(tmp_path: Path) -> None:
    """A program that is not there, a name that is none."""
    missing = LocalProvider([str(tmp_path / "nothing")], tmp_path / "machines")
    with pytest.raises(StartRefused, match="cannot be started"):
        await missing.create("pool-1", "pool")
    with pytest.raises(StartRefused, match="no name of a machine"):
        await missing.create("../escape", "pool")


CRASHING_PARENT = """
import asyncio, os, signal
from tests.apps.bursts import hf
async def main():
    await hf.machines.start()
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_a_crashed_parent_leaves_no_orphan_that_lives_for_ever(
    sqlite_url: str, tmp_path: Path, processes: Processes
) -> None:
    """Its machine serves the job that waits, is seen by the next parent, idles out, and is gone."""
    settings = {"machine_provider": "local", "machine_app": APP, "machine_folder": str(tmp_path / "m"), "machine_idle": 3.0}
    hf = Holdfast(sqlite_url, **settings)
    from tests.apps.bursts import blink

    [job] = await hf._door.enqueue([blink.job()], None)
    env = {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items() if name != "machine_idle"}
    env |= {"HOLDFAST_DATABASE_URL": sqlite_url, "HOLDFAST_MACHINE_IDLE_SEC": "3", "HOLDFAST_APP": APP}
    parent = processes.python("-c", CRASHING_PARENT, env=env)
    await until(lambda: not runs(parent.pid), PATIENCE_SECONDS)
    [orphan] = await hf.machines.list()
    assert orphan.state is MachineState.RUNNING
    assert await hf.wait_for_result(job.id, timeout=PATIENCE_SECONDS) == "seen"

    async def gone() -> bool:
        return not await hf.machines.up()

    await until(gone, PATIENCE_SECONDS)
    await hf.aclose()


@pytest.mark.case("L1", "C25")
async def test_two_hundred_jobs_in_bursts_complete_on_no_more_than_the_maximum(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All complete, at no moment more processes than allowed, and none is left at the end; their time is accounted for."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    sys.modules.pop("tests.apps.bursts", None)
    from tests.apps.bursts import blink, hf

    local = {"machine_provider": "local", "machine_app": APP, "machine_folder": str(tmp_path / "m"), "machine_max": 3}
    quick = {"machine_idle": 0.3, "machine_concurrency": 2, "machine_pool": 1, "reaper_interval": 1.0, "machine_wait": 0.5}
    app = Holdfast(database_url, **local, **quick)
    hf.machines.use(from_settings(app.settings))
    hf.settings = app.settings
    seen: list[int] = []

    async def count_up() -> bool:
        seen.append(len(await hf.machines.up()))
        return seen[-1] > 0

    async def back_to_zero() -> bool:
        return not await count_up()

    jobs = []
    async with hf.machines.running():
        for size in (1, 79, 40, 80):
            jobs += await hf.enqueue_many([blink.job() for _ in range(size)])
            await until(count_up, PATIENCE_SECONDS)
        for job in jobs:
            await count_up()
            await hf.wait_for_result(job.id, timeout=PATIENCE_SECONDS)
        await until(back_to_zero, PATIENCE_SECONDS)
    assert {(await hf.get(job.id)).state for job in jobs} == {State.COMPLETED}
    assert 1 <= max(seen) <= 3
    await hf.reap()
    usage = {row.subject: row for row in await hf.machines.usage()}
    assert usage["tenant"].runs == 200 and usage["tenant"].seconds > 0
    await asyncio.gather(app.aclose(), hf.aclose())
