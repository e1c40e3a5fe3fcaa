"""The statement ran, but its answer got lost: nothing is taken for lost that was written, and no job waits for a lease."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast import Holdfast, RetryLater, State
from holdfast.errors import StorageUnavailable
from tests.cases.steps import comes_to
from tests.support.waiting import until


class LostAnswers:
    """Stands in front of a store: the chosen verbs are carried out, and then their answer gets lost, so many times."""

    def __init__(self, hf: Holdfast, **times: int) -> None:
        self._store = hf.store
        self.left = times
        hf.store = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not self.left.get(name):
            return verb

        async def unanswered(*args: Any, **kwargs: Any) -> Any:
            answer = await verb(*args, **kwargs)
            if not self.left[name] or (name == "job_claim" and not answer.jobs):
                return answer
            self.left[name] -= 1
            raise StorageUnavailable("The answer got lost.")

        return unanswered


async def test_a_completion_whose_answer_got_lost_is_not_called_lost(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again, and told apart from a run that was taken away."""
    LostAnswers(hf, job_complete_if_leased=1)

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        await hf.run_worker(exit_when_idle=0.0)
    assert (await hf.get(job.id)).state is State.COMPLETED
    assert "was taken from this worker" not in caplog.text


async def test_a_failure_whose_answer_got_lost_is_not_called_lost(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """The run stands in the history as failed, so what was sent had arrived."""
    LostAnswers(hf, job_leave_if_leased=1)

    @hf.task(max_attempts=2)
    async def work() -> None:
        raise RetryLater(3600)

    job = await work.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        await hf.run_worker(exit_when_idle=0.0)
    assert [run.outcome for run in await hf.runs(job.id)] == ["failed"]
    assert "was taken from this worker" not in caplog.text


async def test_jobs_of_the_last_claim_whose_answer_got_lost_go_back_when_the_worker_stops(hf: Holdfast) -> None:
    """They do not wait for a lease that nobody holds."""
    lost = LostAnswers(hf, job_claim=1)

    @hf.task
    async def work() -> None: ...

    worker = hf.worker()
    life = asyncio.create_task(worker.run())
    await until(lambda: hf.store.worker_list())
    job = await work.enqueue()
    await until(lambda: not lost.left["job_claim"])
    worker.stop()
    await life
    await comes_to(hf, job, State.QUEUED)
    assert (await hf.get(job.id)).attempt == 0
