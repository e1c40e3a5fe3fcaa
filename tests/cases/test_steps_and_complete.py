"""step() remembers what is done; complete(tx=) ends a job inside the task's own transaction."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from holdfast import Holdfast, State, current, step, step_sync
from holdfast.errors import HoldfastError, InvalidOption, LeaseLost
from holdfast.store.protocol import Departure, Leaving
from tests.cases.steps import comes_to, drain, ends, lines, working
from tests.support.waiting import until


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_retry_skips_the_steps_that_are_done(hf: Holdfast, kind: str) -> None:
    """The second attempt gets the remembered value and goes on from there; sync and async functions are steps."""
    ran: list[str] = []

    def fetch(name: str) -> dict[str, str]:
        ran.append(name)
        return {"got": name}

    async def fetch_async(name: str) -> dict[str, str]:
        return fetch(name)

    @hf.task(backoff=(0,))
    async def pipeline_async() -> list[Any]:
        found = [await step("a", fetch, "one"), await step("b", fetch_async, "two")]
        if current().attempt == 1:
            raise ValueError
        return found

    @hf.task(backoff=(0,))
    def pipeline_in_thread() -> list[Any]:
        found = [step_sync("a", fetch, "one"), step_sync("b", fetch, "two")]
        if current().attempt == 1:
            raise ValueError
        return found

    job = await (pipeline_async if kind == "async" else pipeline_in_thread).enqueue()
    await drain(hf)
    assert await job.result(timeout=0) == [{"got": "one"}, {"got": "two"}]
    assert ran == ["one", "two"] and (await hf.get(job.id)).attempt == 2


async def test_the_same_step_with_other_arguments_runs_again(hf: Holdfast) -> None:
    """Name and arguments together are what is remembered; positional and named ones."""
    ran: list[tuple[int, int]] = []

    def add(a: int, b: int = 0) -> int:
        ran.append((a, b))
        return a + b

    @hf.task
    async def work() -> list[int]:
        return [
            await step("add", add, 1),
            await step("add", add, 2),
            await step("add", add, 1, b=5),
            await step("add", add, 1),
            await step("other", add, 1),
        ]

    job = await work.enqueue()
    await drain(hf)
    assert await job.result(timeout=0) == [1, 2, 6, 1, 1]
    assert ran == [(1, 0), (2, 0), (1, 5), (1, 0)]


async def test_another_job_does_not_see_the_steps_of_this_one(hf: Holdfast) -> None:
    """Steps belong to a job."""
    ran: list[int] = []

    @hf.task
    async def work() -> None:
        await step("once", ran.append, 1)

    await hf.enqueue_many([work.job(), work.job()])
    await drain(hf)
    assert ran == [1, 1]


async def test_a_failed_step_is_not_remembered(hf: Holdfast) -> None:
    """It runs again with the next attempt."""
    ran: list[int] = []

    def fail_first() -> str:
        ran.append(len(ran))
        if len(ran) == 1:
            raise ValueError
        return "second"

    @hf.task(backoff=(0,))
    async def work() -> str:
        return await step("s", fail_first)

    job = await work.enqueue()
    await drain(hf)
    assert await job.result(timeout=0) == "second" and ran == [0, 1]


async def test_a_step_gives_the_same_kind_of_value_the_first_time_and_later(hf: Holdfast) -> None:
    """A tuple comes back as the list that a later attempt would see."""

    @hf.task
    async def work() -> bool:
        return isinstance(await step("pair", lambda: (1, 2)), list)

    job = await work.enqueue()
    await drain(hf)
    assert await job.result(timeout=0) is True


@pytest.mark.parametrize("where", ["arguments", "result"])
async def test_a_step_that_cannot_be_remembered_says_so(hf: Holdfast, where: str) -> None:
    """The message names the step."""

    @hf.task(max_attempts=1)
    async def work() -> None:
        if where == "arguments":
            await step("odd", print, object())
        await step("odd", object)

    job = await work.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert failed.error_code == "option_invalid" and "step odd: the" in str(failed.error_message)


async def test_a_step_of_a_run_that_lost_its_lease_is_refused(hf: Holdfast) -> None:
    """Nothing that the old run did is remembered for the new one."""
    seen: list[type[BaseException]] = []

    @hf.task
    async def work() -> None:
        await _lose_lease(hf)
        try:
            await step("late", lambda: 1)
        except LeaseLost as error:
            seen.append(type(error))
            raise

    await work.enqueue()
    await drain(hf)
    assert seen == [LeaseLost]


async def _lose_lease(hf: Holdfast) -> None:
    run = current()
    lost = Departure(id=run.job_id, run_id=run.run_id, how=Leaving.RETRY, delay=600)
    assert await hf.store.job_leave_if_leased([lost])


async def test_step_outside_a_run_says_so() -> None:
    """Like current()."""
    with pytest.raises(HoldfastError, match="only works inside a task"):
        await step("s", print)
    with pytest.raises(HoldfastError, match="only works inside a task"):
        step_sync("s", print)


async def test_step_sync_in_an_async_task_says_what_to_use(hf: Holdfast) -> None:
    """It would block the loop it runs on."""

    @hf.task(max_attempts=1)
    async def work() -> None:
        step_sync("s", print)

    job = await work.enqueue()
    await drain(hf)
    assert "await the async one" in str((await hf.get(job.id)).error_message)


# -- complete(tx=) -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def ledger(hf: Holdfast) -> Holdfast:
    """The application's own table beside the jobs."""
    async with hf.transaction() as tx:
        await tx.execute("CREATE TABLE ledger (entry TEXT)")
    return hf


async def entries(hf: Holdfast) -> list[str]:
    async with hf.transaction() as tx:
        return [row["entry"] for row in await tx.fetch("SELECT entry FROM ledger")]


async def test_complete_commits_the_job_with_the_tasks_own_write(ledger: Holdfast) -> None:
    """Both are there, the result is the one that was given, and the rest of the task changes nothing."""

    @ledger.task
    async def book() -> str:
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ('booked')")
            await current().complete("from the transaction", tx=tx)
        assert (await ledger.get(current().job_id)).state is State.COMPLETED
        return "returned"

    job = await book.enqueue()
    await drain(ledger)
    done = await ledger.get(job.id)
    assert (done.state, done.output, done.attempt) == (State.COMPLETED, "from the transaction", 1)
    assert await entries(ledger) == ["booked"]


async def test_progress_said_just_before_complete_is_kept(ledger: Holdfast) -> None:
    """It waits with the log for the transaction's end, when the job is completed already."""

    @ledger.task
    async def pay() -> None:
        async with ledger.transaction() as tx:
            current().progress(0.5, "paying")
            await current().complete(tx=tx)
            current().progress(1.0, "paid")

    job = await pay.enqueue()
    await drain(ledger)
    done = await ledger.get(job.id)
    assert (done.state, done.progress, done.stage) == (State.COMPLETED, 1.0, "paid")


async def test_complete_that_is_rolled_back_completes_nothing(ledger: Holdfast) -> None:
    """The attempt fails and the next one books once."""

    @ledger.task(backoff=(0,))
    async def book() -> None:
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ('booked')")
            await current().complete(tx=tx)
            if current().attempt == 1:
                raise ValueError("after complete")

    job = await book.enqueue()
    await drain(ledger)
    done = await ledger.get(job.id)
    assert (done.state, done.attempt) == (State.COMPLETED, 2) and await entries(ledger) == ["booked"]


async def test_complete_after_the_lease_is_lost_is_refused_and_the_write_can_be_rolled_back(ledger: Holdfast) -> None:
    """Two runs can never both book: the one without the lease is told inside its transaction."""

    @ledger.task
    async def book() -> None:
        await _lose_lease(ledger)
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ('twice')")
            await current().complete(tx=tx)

    job = await book.enqueue()
    await drain(ledger)
    assert await entries(ledger) == [] and (await ledger.get(job.id)).state is State.QUEUED


async def test_an_error_after_complete_does_not_run_the_job_again(ledger: Holdfast) -> None:
    """Committed is committed."""

    @ledger.task(backoff=(0,))
    async def book() -> None:
        async with ledger.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES ('booked')")
            await current().complete(tx=tx)
        raise ValueError("too late to matter")

    job = await book.enqueue()
    await drain(ledger)
    assert (await ledger.get(job.id)).state is State.COMPLETED and await entries(ledger) == ["booked"]


async def test_what_a_task_does_after_complete_is_not_cut_off_by_a_heartbeat(ledger: Holdfast) -> None:
    """The lease has ended because the job has, which is no reason to stop the rest of the task."""
    go, rest = asyncio.Event(), []

    @ledger.task
    async def book() -> None:
        async with ledger.transaction() as tx:
            await current().complete(tx=tx)
        await go.wait()
        rest.append("done")

    job = await book.enqueue()
    async with working(ledger) as worker:
        await comes_to(ledger, job, State.COMPLETED)
        answered = asyncio.Event()
        answer = worker.beat_answered
        worker.beat_answered = lambda *told: (answer(*told), answered.set())  # type: ignore[method-assign,assignment,func-returns-value]
        worker._heart.beat_soon()
        await answered.wait()
        go.set()
        await until(lambda: rest)
    assert rest == ["done"]


async def test_complete_with_a_result_that_is_no_json_says_so(ledger: Holdfast) -> None:
    """Before anything is written."""

    @ledger.task(max_attempts=1)
    async def book() -> None:
        async with ledger.transaction() as tx:
            await current().complete(object(), tx=tx)

    job = await book.enqueue()
    await drain(ledger)
    failed = await ledger.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "option_invalid")


async def test_complete_lets_the_next_of_its_order_go(ledger: Holdfast) -> None:
    """Completion inside a transaction is a completion like any other."""
    ran: list[int] = []

    @ledger.task
    async def book(n: int) -> None:
        ran.append(n)
        async with ledger.transaction() as tx:
            await current().complete(tx=tx)

    jobs = await ledger.enqueue_many([book.options(order="k").job(n) for n in range(3)])
    async with working(ledger):
        await ends(ledger, jobs[-1])
    assert ran == [0, 1, 2]


async def test_complete_sync_refuses_an_async_connection(ledger: Holdfast) -> None:
    """And says what to call."""

    @ledger.task
    async def book() -> str:
        async with ledger.transaction() as tx:
            with pytest.raises(InvalidOption, match="await complete"):
                current().complete_sync(tx=tx)
        return "told"

    job = await book.enqueue()
    await drain(ledger)
    assert await job.result(timeout=0) == "told" and await lines(ledger, job) == []


async def test_a_transaction_that_completes_a_job_holds_up_nobody_elses_heartbeat(postgres_url: str) -> None:
    """It has locked the job's row; the leases of the worker's other jobs are extended all the same. SQLite has one writer."""
    hf = Holdfast(postgres_url, heartbeat=0.1, lease=30)
    completed, beaten = asyncio.Event(), asyncio.Event()

    @hf.task
    async def complete_slowly() -> None:
        async with hf.transaction() as tx:
            await current().complete(tx=tx)
            completed.set()
            await beaten.wait()

    @hf.task
    async def go_on() -> None:
        await beaten.wait()

    jobs = [await complete_slowly.enqueue(), await go_on.enqueue()]
    async with working(hf):
        await completed.wait()
        for _ in range(2):
            before = (await hf.get(jobs[1].id)).last_heartbeat_at
            await until(partial(_beaten_since, hf, jobs[1].id, before))
        beaten.set()
        for job in jobs:
            await ends(hf, job)
    await hf.aclose()


async def _beaten_since(hf: Holdfast, job_id: str, moment: datetime | None) -> bool:
    beaten = (await hf.get(job_id)).last_heartbeat_at
    return beaten is not None and (moment is None or beaten > moment)
