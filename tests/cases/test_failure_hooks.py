"""on_failed: a job that fails for good makes another one, in the same transaction, once, and never in a circle."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Abort, Failure, Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError
from holdfast.store.protocol import Departure, Leaving
from tests.support.waiting import until


def failing_with_hook(hf: Holdfast, told: list[Failure], **options: Any) -> Any:
    @hf.task(queue="alarms", max_attempts=2)
    async def alarm(failure: Failure) -> None:
        told.append(failure)

    @hf.task(on_failed=alarm, max_attempts=2, backoff=(0,), **options)
    async def fetch(url: str) -> None:
        raise ValueError(f"{url} is away")

    return fetch


async def test_a_job_that_fails_for_good_tells_its_hook(hf: Holdfast) -> None:
    """After the last attempt and not before: once, with the job's id, task, tenant and error, as a job of the same tenant."""
    told: list[Failure] = []
    fetch = failing_with_hook(hf, told)
    job = await fetch.options(tenant="acme", project="web").enqueue("http://x")
    await hf.run_worker(exit_when_idle=0.0)
    assert told == [
        Failure(
            job_id=job.id,
            task="fetch",
            queue="default",
            tenant="acme",
            project="web",
            attempts=2,
            error_code="task_error",
            error_message="ValueError: http://x is away",
        )
    ]
    (hook,) = await hf.jobs(task="alarm")
    assert (hook.tenant, hook.project, hook.queue, hook.enqueued_by) == ("acme", "web", "alarms", f"on_failed:{job.id}")
    assert hook.id > job.id


async def test_the_reaper_that_gives_a_job_up_tells_its_hook_too(hf_at: Holdfast, clock: ManualClock) -> None:
    """Nobody who knows the task takes part in that: what is to be made stands on the job's own row."""
    fetch = failing_with_hook(hf_at, [], name=None)
    job = await fetch.options(max_attempts=1).enqueue("http://x")
    (claimed,) = (await hf_at.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["fetch"], limit=1)).jobs
    assert claimed.id == job.id
    clock.advance(hours=1)
    assert (await hf_at.reap()).failed == [job.id]
    assert not await hf_at.reap()
    (hook,) = await hf_at.jobs(task="alarm")
    assert hook.args["failure"]["job_id"] == job.id
    assert hook.args["failure"]["error_code"] == "lease_expired"
    assert (hook.state, hook.run_at) == ("queued", clock.now())


async def test_one_failure_makes_one_job_however_often_it_is_reported(hf_at: Holdfast) -> None:
    """The second report is fenced off; a retry by hand that fails again is a failure of its own."""
    fetch = failing_with_hook(hf_at, [])
    job = await fetch.enqueue("http://x")
    for failures in (1, 2):
        (claimed,) = (await hf_at.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["fetch"], limit=1)).jobs
        end = Departure(id=job.id, run_id=claimed.run_id, how=Leaving.FAIL, error_code="x", error_message="y")
        await hf_at.store.job_leave_if_leased([end])
        await hf_at.store.job_leave_if_leased([end])
        assert len(await hf_at.jobs(task="alarm")) == failures
        await hf_at.retry(job.id)


async def test_a_hook_that_fails_itself_ends_there(hf: Holdfast) -> None:
    """Also where a hook for all tasks is set: its own failure makes nothing."""

    @hf.on_failed
    @hf.task(max_attempts=1)
    async def alarm(failure: dict[str, Any]) -> None:
        raise Abort("no way to tell anybody")

    @hf.task(max_attempts=1)
    async def fetch() -> None:
        raise Abort("away")

    await fetch.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    assert sorted((job.task, job.state) for job in await hf.jobs()) == [("alarm", "failed"), ("fetch", "failed")]


async def test_cancelled_and_completed_jobs_tell_nobody(hf: Holdfast) -> None:
    """Only a failure is one."""
    told: list[Failure] = []
    fetch = failing_with_hook(hf, told)

    @hf.task(on_failed=hf.tasks["alarm"])
    async def fine() -> None: ...

    cancelled = await fetch.options(delay=3600).enqueue("http://x")
    await hf.cancel(cancelled.id)
    await fine.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    assert await hf.jobs(task="alarm") == []


async def test_an_isolated_run_that_is_killed_tells_its_hook(hf: Holdfast) -> None:
    """A job that the worker itself gives up (here: arguments that no longer fit) goes the same way."""
    told: list[Failure] = []
    fetch = failing_with_hook(hf, told)
    job = await fetch.enqueue("http://x")

    @hf.task(name="fetch2", aliases=[])
    async def fetch2(other: int) -> None: ...

    hf.tasks["fetch"] = fetch2
    await hf.run_worker(exit_when_idle=0.0)
    await until(lambda: told)
    assert (told[0].job_id, told[0].error_code) == (job.id, "args_invalid")


def test_what_cannot_be_a_hook_is_refused_where_it_is_written() -> None:
    """A plain function, and a task that could not take what it is told."""
    hf = Holdfast("sqlite:///:memory:")

    @hf.task
    async def nothing() -> None: ...

    @hf.task
    async def number(n: int) -> None: ...

    @hf.task
    async def two(failure: Failure, other: int) -> None: ...

    for hook in (nothing, number, two, lambda failure: None, "nothing"):
        with pytest.raises(ConfigError, match="on_failed"):
            hf.task(on_failed=hook, name="other")(lambda: None)
