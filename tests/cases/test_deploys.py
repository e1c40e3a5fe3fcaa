"""Deploys: queued jobs meet a program whose tasks were renamed, changed, or are not there."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from tests.cases.steps import drain, messages


@pytest.mark.case("L31")
async def test_a_job_of_a_renamed_task_runs_by_its_alias(hf: Holdfast, database_url: str) -> None:
    """The old name stays on the job, the new function runs it."""

    @hf.task
    async def send_mail(to: str) -> str:
        return f"old {to}"

    job = await send_mail.enqueue("ana")
    new = Holdfast(database_url)

    @new.task(aliases=["send_mail"])
    async def send_receipt(to: str) -> str:
        return f"new {to}"

    await drain(new)
    await new.aclose()
    done = await hf.get(job.id)
    assert (done.task, done.output) == ("send_mail", "new ana")


@pytest.mark.case("L31")
async def test_a_job_whose_arguments_no_longer_fit_fails_at_once_without_a_burnt_attempt(
    hf: Holdfast, database_url: str
) -> None:
    """`args_invalid` names the argument; after the fix a replay runs with all its attempts."""

    @hf.task(name="resize")
    async def resize(width: int) -> None: ...

    job = await resize.enqueue(5)
    changed = Holdfast(database_url)

    @changed.task(name="resize")
    async def resize_changed(width: int, height: int) -> str:
        return "never"

    await drain(changed)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.error_code) == (State.FAILED, 0, "args_invalid")
    assert failed.error_message == "resize: argument height is missing"
    assert await messages(hf, job) == ["Attempt 1 of 3 failed: resize: argument height is missing"]

    fixed = Holdfast(database_url)

    @fixed.task(name="resize")
    async def resize_fixed(width: int, height: int = 7) -> int:
        return width * height

    again = await fixed.retry(job.id)
    assert (again.state, again.attempt) == (State.QUEUED, 0)
    await drain(fixed)
    done = await hf.get(job.id)
    assert (done.output, done.attempt, done.error_code) == (35, 1, None)
    await changed.aclose()
    await fixed.aclose()


@pytest.mark.case("L26")
async def test_a_task_that_a_worker_does_not_know_is_left_for_one_that_does(hf: Holdfast, database_url: str) -> None:
    """Not claimed, not failed, and no attempt burnt."""

    @hf.task
    async def known() -> str:
        return "known"

    @hf.task
    async def only_here() -> str:
        return "only here"

    other = Holdfast(database_url)
    other.task(name="known")(known.fn)
    stranger, common = await only_here.enqueue(), await known.enqueue()
    assert (await drain(other)).jobs == 1
    await other.aclose()
    assert await common.result(timeout=0) == "known"
    left = await hf.get(stranger.id)
    assert (left.state, left.attempt, left.run_id) == (State.QUEUED, 0, stranger.run_id)
    await drain(hf)
    assert await stranger.result(timeout=0) == "only here"


@pytest.mark.case("L26")
async def test_a_job_that_no_worker_knows_is_shown_after_a_while(hf_at: Holdfast, clock: ManualClock) -> None:
    """Health reads it here: queue, task, and how many."""

    @hf_at.task
    async def orphan() -> None: ...

    await hf_at.enqueue_many([orphan.job(), orphan.job()])
    assert await hf_at.store.job_unserved(60, 10) == []
    clock.advance(61)
    assert await hf_at.store.job_unserved(60, 10) == [("default", "orphan", 2)]


async def test_an_isolated_task_that_cannot_be_imported_again_says_so(hf: Holdfast) -> None:
    """A task made where another process cannot find it is refused by a clear code, not by a hang."""
    import tests.cases.steps as somewhere

    async def vanished() -> None: ...

    vanished.__qualname__ = "vanished"
    vanished.__module__ = somewhere.__name__
    job = await hf.task(isolate=True, max_attempts=1)(vanished).enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "task_unimportable")
    assert str(failed.error_message).startswith("its module cannot be imported in a process of its own")
