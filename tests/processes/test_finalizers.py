"""Garbage that logs while it is collected, in real workers: the collector may run it in the middle of any line of ours."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.store.protocol import LogFilter
from tests.apps.finalizing import LINES
from tests.support.processes import Processes


@pytest.mark.parametrize("task", ["talk_here", "talk_in_thread", "talk_apart"])
async def test_a_worker_goes_on_whatever_its_garbage_logs(processes: Processes, database_url: str, task: str) -> None:
    """The run ends, and every line is kept, numbered without a gap."""
    hf = Holdfast(database_url)

    @hf.task(name=task)
    async def stand_in() -> int: ...

    job = await stand_in.enqueue()
    worker = processes.worker(
        "--exit-when-idle",
        "0",
        app="tests.apps.finalizing:hf",
        database_url=database_url,
        env={"HOLDFAST_LOG_LINES_MAX": "1000000"},
    )
    assert await worker.exited(timeout=90) == 0, worker.output
    collected = await hf.wait_for_result(job.id, timeout=0)
    (last,) = await hf.store.log_read((await hf.get(job.id)).run_id, LogFilter(), limit=1, newest=True)
    await hf.aclose()
    assert collected > 0  # how much is collected before the end is up to the collector
    if task == "talk_apart":  # a process of its own has a real stdout, whose lines are not captured here
        assert last.no == LINES + collected
    else:  # what is collected in the thread of the writer prints outside of the run
        assert 2 * LINES + collected <= last.no <= 2 * (LINES + collected)
