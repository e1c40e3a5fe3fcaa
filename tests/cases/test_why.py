"""Why does this job, or this tenant, wait? One sentence that names what holds it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Abort, Holdfast, Job, Snooze
from holdfast.clock import ManualClock
from holdfast.errors import JobNotFound
from holdfast.store.protocol import Claimed, WorkerRow
from tests.cases.steps import drain, ends


async def elsewhere(hf: Holdfast, limit: int = 1) -> list[Claimed]:
    """A worker elsewhere takes jobs and runs them for as long as the test likes."""
    queues = sorted({task.spec.queue for task in hf.tasks.values()})
    return (await hf.store.job_claim(worker="w-1", machine=None, queues=queues, tasks=list(hf.tasks), limit=limit)).jobs


async def alive(hf: Holdfast, **fields: Any) -> None:
    """A worker of queue default that knows the task `work` says that it is there."""
    usual: dict[str, Any] = {"id": "w-1", "host": "h", "pid": 1, "machine_id": None, "version": "1", "queues": ["default"]}
    await hf.store.worker_save(WorkerRow(**{**usual, "tasks": ["work"], "concurrency": 2, **fields}))


@pytest.fixture
def work(hf_at: Holdfast) -> Any:
    @hf_at.task(max_attempts=3, backoff=(600,))
    async def work() -> None:
        """Does nothing."""

    return work


async def why(hf: Holdfast, job: Job[Any]) -> tuple[str, str]:
    answer = await hf.why(job.id)
    return answer.code, answer.sentence


async def test_why_of_a_scheduled_job_names_its_time(hf_at: Holdfast, clock: ManualClock, work: Any) -> None:
    """And how long that is from now."""
    job = await work.options(delay=90).enqueue()
    at = f"{clock.now() + timedelta(seconds=90):%Y-%m-%d %H:%M:%S} UTC"
    assert await why(hf_at, job) == ("scheduled", f"It is scheduled for {at} (in 90 s).")
    assert (await hf_at.why(job.id)).details["seconds"] == 90
    clock.advance(90)
    assert (await hf_at.why(job.id)).code == "no_worker"


async def test_why_of_a_retrying_job_names_the_error(hf_at: Holdfast, clock: ManualClock) -> None:
    """Which attempt failed, why, and when the next one comes; a snooze is no failure."""

    @hf_at.task(max_attempts=3, backoff=(600,))
    async def fail() -> None:
        raise ConnectionError("the other side hung up")

    @hf_at.task
    async def snooze() -> None:
        raise Snooze(600)

    failing, snoozing = await fail.enqueue(), await snooze.enqueue()
    await drain(hf_at)
    at = f"{clock.now() + timedelta(seconds=600):%Y-%m-%d %H:%M:%S} UTC"
    code, sentence = await why(hf_at, failing)
    assert code == "retrying"
    assert sentence.startswith("Attempt 1 of 3 failed: ") and "the other side hung up" in sentence
    assert sentence.endswith(f"; it is tried again at {at} (in 10 min).")
    assert await why(hf_at, snoozing) == ("scheduled", f"It is scheduled for {at} (in 10 min).")


async def test_why_names_the_rate_limit_that_a_job_waits_for(hf_at: Holdfast, clock: ManualClock) -> None:
    """Asked for by the task's option or by the task itself; when the window opens, nothing of it is left."""
    hf_at.limit("export", tenant=1, per=60)

    @hf_at.task(rate="export", on_rate_limited="wait")
    async def export() -> None: ...

    @hf_at.task(on_rate_limited="wait")
    async def ask() -> None:
        (await hf_at.rate.take("export", tenant="acme")).require()

    await export.options(tenant="acme").enqueue()
    await drain(hf_at)
    optional, own = await export.options(tenant="acme").enqueue(), await ask.options(tenant="acme").enqueue()
    await drain(hf_at)
    at = f"{clock.now() + timedelta(seconds=60):%Y-%m-%d %H:%M:%S} UTC (in 60 s)"
    assert await why(hf_at, optional) == (
        "rate_limit",
        f"The rate limit export (1 for the tenant) is used up. It asks again at {at}.",
    )
    code, sentence = await why(hf_at, own)
    assert code == "rate_limit" and sentence.startswith("The rate limit export (1 per tenant) is used up")
    clock.advance(61)
    assert (await hf_at.why(optional.id)).code == "no_worker"


async def test_why_of_an_ordered_job_names_the_one_before_it(hf_at: Holdfast, work: Any) -> None:
    """While that one waits itself, while it runs, and when it has failed and blocks."""
    first, second = [await work.options(order="acct:1").enqueue() for _ in range(2)]
    waits = f"It waits for job {first.id} (work) with the same ordering key 'acct:1', which"
    assert await why(hf_at, second) == ("behind_ordered_job", f"{waits} is queued itself.")
    await elsewhere(hf_at)
    assert await why(hf_at, second) == ("behind_ordered_job", f"{waits} runs now.")
    assert (await hf_at.why(second.id)).details == {"job_id": first.id, "order_key": "acct:1"}


async def test_why_of_a_job_behind_a_failed_one_says_what_to_do(hf_at: Holdfast) -> None:
    """Retry or cancel the one that blocks."""

    @hf_at.task(order_on_failure="block")
    async def fail() -> None:
        raise Abort("no such account")

    first, second = [await fail.options(order="acct:1").enqueue() for _ in range(2)]
    await drain(hf_at)
    code, sentence = await why(hf_at, second)
    assert code == "behind_ordered_job"
    assert first.id in sentence and sentence.endswith(
        "which has failed and blocks those behind it until it is retried and then completed or cancelled."
    )


async def test_why_names_a_paused_queue(hf_at: Holdfast, clock: ManualClock, work: Any) -> None:
    """Who paused it and since when."""
    job = await work.enqueue()
    await hf_at.queues.pause("default", by="ana")
    assert await why(hf_at, job) == (
        "queue_paused",
        f"Queue default is paused by ana since {clock.now():%Y-%m-%d %H:%M:%S} UTC.",
    )


async def test_why_names_a_full_queue(hf_at: Holdfast, work: Any) -> None:
    """With its limit."""
    await hf_at.queues.set("default", limit=2)
    *_, last = [await work.enqueue() for _ in range(3)]
    await elsewhere(hf_at, 10)
    assert await why(hf_at, last) == ("queue_limit", "Queue default runs 2 of 2 jobs at once.")
    assert (await hf_at.why(last.id)).details == {"limit": 2}


async def test_why_names_a_paused_tenant(hf_at: Holdfast, clock: ManualClock, work: Any) -> None:
    """For the job and for the tenant itself."""
    job = await work.options(tenant="acme").enqueue()
    await hf_at.tenants.pause("acme", by="ana")
    expected = ("tenant_paused", f"Tenant acme is paused by ana since {clock.now():%Y-%m-%d %H:%M:%S} UTC.")
    assert await why(hf_at, job) == expected
    tenant = await hf_at.why_tenant("acme")
    assert (tenant.code, tenant.sentence) == expected


async def test_why_names_a_tenants_limit_and_who_uses_it(hf_at: Holdfast, work: Any) -> None:
    """Plan, limit and the jobs that run; for the tenant also how many wait."""
    await hf_at.tenants.set("acme", plan="starter")
    *_, last = [await work.options(tenant="acme").enqueue() for _ in range(5)]
    ids = [run.id for run in await elsewhere(hf_at, 10)]
    users = f"It is used by {', '.join(f'work {job_id}' for job_id in ids)}."
    assert await why(hf_at, last) == ("tenant_limit", f"Tenant acme is at its limit of 3 running (plan starter). {users}")
    assert (await hf_at.why(last.id)).details == {"limit": 3, "running": 3, "plan": "starter", "jobs": ids}
    tenant = await hf_at.why_tenant("acme")
    assert tenant.sentence == f"Tenant acme is at its limit of 3 running (plan starter) and holds 2 queued jobs. {users}"


async def test_why_names_no_more_than_a_few_of_those_that_use_a_limit(hf_at: Holdfast, work: Any) -> None:
    """Three, and that there are more."""
    await hf_at.tenants.set("acme", plan="pro")
    await hf_at.enqueue_many([work.options(tenant="acme").job() for _ in range(11)])
    await elsewhere(hf_at, 100)
    assert (await hf_at.why_tenant("acme")).sentence.count("work ") == 3
    assert (await hf_at.why_tenant("acme")).sentence.endswith(", ….")


async def test_why_says_that_no_worker_could_run_it(hf_at: Holdfast, clock: ManualClock, work: Any) -> None:
    """None alive; or those alive serve other queues or tasks, or are about to go, or were silent for a minute."""
    job = await work.enqueue()
    missing = "No worker serves queue default and knows task work"
    assert await why(hf_at, job) == ("no_worker", f"{missing}; no worker is alive.")
    await alive(hf_at, id="w-2", queues=["other"])
    await alive(hf_at, id="w-3", tasks=["other"])
    await alive(hf_at, id="w-4", draining=True)
    assert await why(hf_at, job) == ("no_worker", f"{missing}; the 2 live workers serve other queues or tasks.")
    clock.advance(61)
    assert await why(hf_at, job) == ("no_worker", f"{missing}; no worker is alive.")


async def test_why_says_that_all_workers_are_busy(hf_at: Holdfast, work: Any) -> None:
    """Those that could run it, with their slots."""
    job = await work.enqueue()
    await alive(hf_at, id="w-1", running=2)
    await alive(hf_at, id="w-2", running=3)
    assert await why(hf_at, job) == ("workers_busy", "All 4 slots of the 2 workers that could run it are busy.")


async def test_why_of_a_job_that_nothing_holds_says_so(hf_at: Holdfast, work: Any) -> None:
    """There is a free slot: it is about to start."""
    job = await work.options(tenant="acme").enqueue()
    await alive(hf_at, running=1)
    assert await why(hf_at, job) == ("claimable", "Nothing holds it: it starts as soon as a worker asks for work.")


async def test_why_of_a_running_job_names_its_worker(hf_at: Holdfast, work: Any) -> None:
    """And whether it was asked to cancel."""
    job = await work.enqueue()
    await elsewhere(hf_at)
    assert await why(hf_at, job) == ("running", "It is not waiting: it runs on w-1.")
    await hf_at.cancel(job.id)
    assert await why(hf_at, job) == ("running", "It is not waiting: it runs on w-1 and was asked to cancel.")


async def test_why_of_an_ended_job_says_how_it_ended(hf: Holdfast) -> None:
    """Completed, failed, cancelled."""

    @hf.task(max_attempts=1)
    async def work(good: bool) -> None:
        if not good:
            raise Abort("bad")

    good, bad, cancelled = await work.enqueue(True), await work.enqueue(False), await work.options(delay=60).enqueue(True)
    await hf.cancel(cancelled.id)
    await drain(hf)
    assert await why(hf, await ends(hf, good)) == ("completed", "It is not waiting: it has completed.")
    assert await why(hf, bad) == ("failed", "It is not waiting: it has failed.")
    assert await why(hf, cancelled) == ("cancelled", "It is not waiting: it was cancelled.")


async def test_why_of_an_unknown_job_is_a_typed_error(hf: Holdfast) -> None:
    """Whatever the id looks like."""
    for job_id in ("01890000-0000-7000-8000-000000000000", "nonsense"):
        with pytest.raises(JobNotFound):
            await hf.why(job_id)


async def test_why_of_a_tenant_that_nothing_holds(hf_at: Holdfast, work: Any) -> None:
    """Nothing waits; or something waits and there is room."""
    nothing = await hf_at.why_tenant("acme")
    assert (nothing.code, nothing.sentence) == ("nothing_waits", "Tenant acme has no queued jobs.")
    await hf_at.tenants.set("acme", plan="pro")
    await hf_at.enqueue_many([work.options(tenant="acme").job() for _ in range(3)])
    await elsewhere(hf_at)
    free = await hf_at.why_tenant("acme")
    assert free.code == "not_limited" and free.details == {"waiting": 2}
    assert free.sentence.startswith("Tenant acme has 2 queued jobs and runs 1 of the 10 it may: no limit holds it")
