"""Ordering keys and unique keys, with several workers and many callers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from holdfast.errors import DuplicateJob, JobConflict
from tests.cases.steps import comes_to, drain, ends, jobs_stored, working


class Watch:
    """Notes who runs together with whom."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.now: set[int] = set()
        self.together = 0

    async def run(self, n: int) -> None:
        self.order.append(n)
        self.now.add(n)
        self.together = max(self.together, len(self.now))
        for _ in range(5):
            await asyncio.sleep(0)
        self.now.discard(n)


@pytest.mark.case("L21")
async def test_jobs_with_one_ordering_key_run_one_at_a_time_in_order_over_two_workers(hf: Holdfast) -> None:
    """40 jobs, two workers with ten slots each: never two together, never out of order."""
    watch = Watch()

    @hf.task
    async def post(n: int) -> None:
        await watch.run(n)

    await hf.enqueue_many([post.options(order="acct:1").job(n) for n in range(40)])
    async with working(hf), working(hf):
        last = await post.options(order="acct:1").enqueue(40)
        await ends(hf, last)
    assert watch.order == list(range(41)) and watch.together == 1


@pytest.mark.case("L21")
async def test_different_keys_and_different_tenants_do_not_wait_for_each_other(hf: Holdfast) -> None:
    """The key's scope is the tenant; all three run together."""
    gate, here = asyncio.Event(), 0

    @hf.task
    async def post() -> None:
        nonlocal here
        here += 1
        if here == 3:
            gate.set()
        await gate.wait()

    await hf.tenants.set("one", plan="starter")
    jobs = [
        await post.options(order="a", tenant="one").enqueue(),
        await post.options(order="a", tenant="two").enqueue(),
        await post.options(order="b", tenant="one").enqueue(),
    ]
    async with working(hf):
        for job in jobs:
            await ends(hf, job)


@pytest.mark.case("L21")
async def test_a_retrying_job_holds_those_behind_it(hf_at: Holdfast, clock: ManualClock) -> None:
    """Order means order: the second waits until the first has ended for good."""
    ran: list[str] = []

    @hf_at.task(backoff=(60,), max_attempts=2)
    async def post(name: str) -> None:
        ran.append(name)
        if name == "first":
            raise ValueError

    await post.options(order="k").enqueue("first")
    second = await post.options(order="k").enqueue("second")
    await drain(hf_at)
    assert ran == ["first"] and (await hf_at.get(second.id)).state is State.QUEUED
    clock.advance(60)
    await drain(hf_at)
    assert ran == ["first", "first", "second"]


@pytest.mark.case("L21")
@pytest.mark.parametrize("rule", ["skip", "block"])
async def test_a_failed_first_job_follows_the_stated_rule(hf: Holdfast, rule: str) -> None:
    """`skip`: the next one runs. `block`: it waits until somebody mends and replays the failed one."""
    broken, ran = True, []

    @hf.task(max_attempts=1, order_on_failure=rule)  # type: ignore[arg-type]
    async def post(name: str) -> None:
        if name == "first" and broken:
            raise ValueError
        ran.append(name)

    first = await post.options(order="k").enqueue("first")
    await post.options(order="k").enqueue("second")
    await drain(hf)
    assert ran == (["second"] if rule == "skip" else [])
    broken = False
    await hf.retry(first.id)
    await drain(hf)
    assert ran == (["second", "first"] if rule == "skip" else ["first", "second"])


@pytest.mark.case("L21")
async def test_cancelling_the_first_lets_the_next_go(hf: Holdfast) -> None:
    """A queued one and a running one alike."""
    go, ran = asyncio.Event(), []

    @hf.task(cancel="immediate")
    async def post(name: str) -> None:
        ran.append(name)
        if name == "running":
            await go.wait()

    running = await post.options(order="k").enqueue("running")
    queued = await post.options(order="k").enqueue("queued")
    last = await post.options(order="k").enqueue("last")
    async with working(hf):
        await comes_to(hf, running, State.RUNNING)
        await hf.cancel(queued.id)
        await hf.cancel(running.id)
        await ends(hf, last)
    assert ran == ["running", "last"]


@pytest.mark.case("L22")
async def test_50_concurrent_enqueues_with_one_unique_key_make_one_job(hf: Holdfast) -> None:
    """All callers get its id; one of them created it."""

    @hf.task
    async def sync_project() -> None: ...

    jobs = await asyncio.gather(*[sync_project.options(tenant="acme", unique="p:1").enqueue() for _ in range(50)])
    assert len({job.id for job in jobs}) == 1 and sum(job.created for job in jobs) == 1
    assert await jobs_stored(hf) == 1


async def test_a_unique_key_is_free_again_when_its_job_has_ended(hf: Holdfast) -> None:
    """Active means queued or running."""
    go = asyncio.Event()

    @hf.task
    async def sync_project() -> None:
        await go.wait()

    first = await sync_project.options(unique="p").enqueue()
    async with working(hf):
        await comes_to(hf, first, State.RUNNING)
        again = await sync_project.options(unique="p").enqueue()
        assert (again.id, again.created, again.state) == (first.id, False, State.RUNNING)
        go.set()
        await ends(hf, first)
        fresh = await sync_project.options(unique="p").enqueue()
    assert fresh.created and fresh.id != first.id


async def test_a_unique_key_belongs_to_its_tenant(hf: Holdfast) -> None:
    """Two tenants, and none at all, do not meet."""

    @hf.task
    async def work() -> None: ...

    jobs = [await work.options(tenant=tenant, unique="same").enqueue() for tenant in ("a", "b", None)]
    assert len({job.id for job in jobs}) == 3


async def test_on_duplicate_raise_names_the_active_job(hf: Holdfast) -> None:
    """And writes nothing."""

    @hf.task
    async def work() -> None: ...

    first = await work.options(unique="k").enqueue()
    with pytest.raises(DuplicateJob) as caught:
        await work.options(unique="k", on_duplicate="raise").enqueue()
    assert caught.value.job_id == first.id and await jobs_stored(hf) == 1


async def test_enqueue_many_with_a_refused_duplicate_writes_none_of_them(hf: Holdfast) -> None:
    """All or nothing."""

    @hf.task
    async def work(n: int) -> None: ...

    first = await work.options(unique="k").enqueue(0)
    bound = work.options(unique="k", on_duplicate="raise")
    with pytest.raises(DuplicateJob) as caught:
        await hf.enqueue_many([work.job(1), bound.job(2), work.job(3)])
    assert caught.value.job_id == first.id and await jobs_stored(hf) == 1


async def test_a_replay_whose_unique_key_is_taken_is_a_conflict(hf: Holdfast) -> None:
    """Otherwise two jobs with one key would be active."""

    @hf.task
    async def work() -> None: ...

    old = await work.options(unique="k").enqueue()
    await hf.cancel(old.id)
    await work.options(unique="k").enqueue()
    with pytest.raises(JobConflict) as caught:
        await hf.retry(old.id)
    assert caught.value.code == "duplicate_active"
