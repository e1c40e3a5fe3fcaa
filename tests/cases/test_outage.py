"""The database goes away: at enqueue, at claim, while logging, at completion, and comes back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.processes import claimer as claimer_module
from holdfast.processes.reaper import Reaper
from tests.cases.away import Outage
from tests.cases.steps import comes_to, drain, ends, jobs_stored, lines, messages, working
from tests.conformance.scene import beat, start
from tests.support.waiting import until


@pytest.mark.case("I15")
async def test_database_away_at_enqueue_is_a_typed_error_and_nothing_is_queued(hf: Holdfast) -> None:
    """StorageUnavailable to the caller; the same call works once the database is back."""
    outage = Outage(hf)

    @hf.task
    async def work() -> None: ...

    with outage.of("job_insert_many"), pytest.raises(StorageUnavailable):
        await work.enqueue()
    assert await jobs_stored(hf) == 0
    await work.enqueue()
    assert await jobs_stored(hf) == 1


@pytest.mark.case("I15")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://nobody@127.0.0.1:1/none",
        "postgresql://nobody@/none?host=/nowhere/at/all",
        "sqlite:////nowhere/at/all/jobs.db",
    ],
)
async def test_a_database_that_is_really_not_there_is_a_typed_error_with_what_to_do(url: str) -> None:
    """One sentence, with the place but never the password."""
    hf = Holdfast(url.replace("nobody@", "nobody:hunter2pass@"))

    @hf.task
    async def work() -> None: ...

    with pytest.raises(StorageError) as caught:
        await work.enqueue()
    message = str(caught.value)
    assert "\n" not in message and "hunter2pass" not in message and len(message) < 300
    await hf.aclose()


@pytest.mark.case("I16")
async def test_database_away_at_claim_is_tried_again_until_it_is_back(hf: Holdfast) -> None:
    """The job stays queued meanwhile, and the tries come slower and slower, not in a flood."""
    outage = Outage(hf)

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    async with working(hf):
        with outage.of("job_claim"):
            await until(lambda: outage.refused.get("job_claim", 0) >= 2)
            assert (await hf.get(job.id)).state is State.QUEUED
        assert await job.result(timeout=40) == "done"
    assert outage.refused["job_claim"] < 10


@pytest.mark.case("I16", "I20")
async def test_an_idle_exit_worker_leaves_when_the_database_stays_away(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time without a database it ends by itself, so that its machine stops; the job is still queued."""
    monkeypatch.setattr(claimer_module, "DATABASE_AWAY_SECONDS", 0.3)
    outage = Outage(hf)

    @hf.task
    async def work() -> None: ...

    job = await work.enqueue()
    with outage.of("job_claim", "worker_save", "worker_remove", "lease_extend_if_held"):
        end = await asyncio.wait_for(hf.run_worker(exit_when_idle=60), 50)
    assert end.reason == "database_away"
    assert (await hf.get(job.id)).state is State.QUEUED


@pytest.mark.case("I16")
async def test_a_worker_without_idle_exit_waits_for_its_database(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is somebody else's decision to end it."""
    monkeypatch.setattr(claimer_module, "DATABASE_AWAY_SECONDS", 0.0)
    outage = Outage(hf)

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    with outage.of("job_claim", "worker_save"):
        async with working(hf):
            await until(lambda: outage.refused.get("job_claim", 0) >= 2)
            outage._away.clear()
            assert await job.result(timeout=40) == "done"


@pytest.mark.case("I16")
async def test_an_odd_error_of_the_database_at_claim_does_not_end_the_worker(hf: Holdfast) -> None:
    """A statement that was refused once may be accepted the next time."""
    claim, odd = hf.store.job_claim, 2

    async def refuse_twice(**asked: object) -> object:
        nonlocal odd
        odd -= 1
        if odd >= 0:
            raise StorageError("The database refused a statement: canceled on identification as a pivot")
        return await claim(**asked)  # type: ignore[arg-type]

    hf.store.job_claim = refuse_twice  # type: ignore[method-assign,assignment]

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    async with working(hf):
        assert await job.result(timeout=40) == "done"


@pytest.mark.case("I17", "logger-5")
async def test_lines_wait_for_the_database_while_the_job_goes_on(hf: Holdfast) -> None:
    """What was said during the outage is there afterwards, in order and once."""
    outage = Outage(hf)
    go = asyncio.Event()

    @hf.task
    async def talk() -> str:
        for n in range(5):
            current().log.info(f"line {n}")
        current().progress(0.5)
        await go.wait()
        current().log.info("line 5")
        return "done"

    job = await talk.enqueue()
    async with working(hf):
        with outage.of("log_append_if_leased", "progress_set_if_leased"):
            await until(lambda: outage.refused.get("log_append_if_leased", 0) >= 2)
            assert (await hf.get(job.id)).state is State.RUNNING
        go.set()
        assert await job.result(timeout=40) == "done"
    assert await messages(hf, job) == [f"line {n}" for n in range(6)]
    assert (await hf.get(job.id)).progress == 0.5


@pytest.mark.case("I17", "logger-5")
async def test_a_log_that_cannot_be_kept_is_counted_and_never_fails_the_job(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """The job completes without its lines; the worker says how many are lost."""
    outage = Outage(hf)

    @hf.task
    async def talk() -> str:
        for _ in range(7):
            current().log.info("lost")
        return "done"

    job = await talk.enqueue()
    with outage.of("log_append_if_leased"), caplog.at_level(logging.WARNING, "holdfast"):
        await drain(hf)
    assert await job.result(timeout=0) == "done" and await lines(hf, job) == []
    assert f"7 log lines of job {job.id} could not be kept." in caplog.messages


@pytest.mark.case("I18")
async def test_database_away_at_completion_is_tried_again_and_the_result_is_kept(hf: Holdfast) -> None:
    """While it is away the job is running, never reported as done; afterwards it is completed once."""
    outage = Outage(hf)
    ran = 0

    @hf.task
    async def work() -> str:
        nonlocal ran
        ran += 1
        return "kept"

    job = await work.enqueue()
    async with working(hf):
        with outage.of("job_complete_if_leased"):
            await until(lambda: outage.refused.get("job_complete_if_leased", 0) >= 2)
            assert (await hf.get(job.id)).state is State.RUNNING
        assert await job.result(timeout=40) == "kept"
    assert ran == 1 and (await hf.get(job.id)).attempt == 1


@pytest.mark.case("I18")
async def test_a_failure_is_written_when_the_database_is_back(hf: Holdfast) -> None:
    """Retries and failures wait like results do."""
    outage = Outage(hf)

    @hf.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("kept")

    job = await fail.enqueue()
    async with working(hf):
        with outage.of("job_leave_if_leased"):
            await until(lambda: outage.refused.get("job_leave_if_leased", 0) >= 2)
        assert (await ends(hf, job)).error_message == "ValueError: kept"


@pytest.mark.case("I18")
async def test_a_completion_that_could_not_be_written_in_time_is_run_again_and_counts_once(
    hf_at: Holdfast, clock: ManualClock
) -> None:
    """The lease ran out during the outage: the second run's result stands, the first one's late completion is refused."""
    outage = Outage(hf_at)
    runs: list[str] = []

    @hf_at.task(backoff=(0,))
    async def work() -> int:
        runs.append(current().run_id)
        return len(runs)

    job = await work.enqueue()
    async with working(hf_at):
        with outage.of("job_complete_if_leased", "lease_extend_if_held"):
            await until(lambda: outage.refused.get("job_complete_if_leased", 0) >= 1)
            clock.advance(301)
            assert (await hf_at.reap()).requeued == [job.id]
        done = await ends(hf_at, job)
    assert (done.output, done.attempt, len(set(runs))) == (2, 2, 2)
    assert [run.outcome for run in await hf_at.runs(job.id)] == ["completed", "lost"]


class Claims(Outage):
    """Knows how many claims are under way."""

    under_way = 0

    def __getattr__(self, name: str) -> Any:
        verb = super().__getattr__(name)

        async def counted(**asked: Any) -> Any:
            self.under_way += 1
            try:
                return await verb(**asked)
            finally:
                self.under_way -= 1

        return counted if name == "job_claim" else verb


@pytest.mark.case("I18")
async def test_a_worker_whose_outcomes_cannot_be_written_claims_no_more(hf: Holdfast) -> None:
    """What has run and is not written down may have to run again: that does not become more while it lasts."""
    outage = Claims(hf)
    started: list[int] = []

    @hf.task
    async def work(number: int) -> None:
        started.append(number)

    jobs = [await work.enqueue(0)]
    async with working(hf):
        with outage.of("job_complete_if_leased"):
            await until(lambda: outage.refused.get("job_complete_if_leased", 0) >= 3 and not outage.under_way)
            jobs += [await work.enqueue(number) for number in range(1, 6)]
            await until(lambda: outage.refused["job_complete_if_leased"] >= 4)
            assert started == [0]
        done = [await ends(hf, job) for job in jobs]
    assert (sorted(started), {job.attempt for job in done}) == ([0, 1, 2, 3, 4, 5], {1})


@pytest.mark.case("I18")
async def test_one_result_that_the_database_refuses_fails_alone(hf: Holdfast) -> None:
    """In a batch of completions a bad one is found and failed with a clear code; the others complete."""
    complete = hf.store.job_complete_if_leased

    async def refuse_the_bad_one(completions: list[object]) -> object:
        if any('"bad"' in str(completion) for completion in completions):
            raise StorageError("The database refused a statement: invalid input")
        return await complete(completions)  # type: ignore[arg-type]

    hf.store.job_complete_if_leased = refuse_the_bad_one  # type: ignore[method-assign,assignment]
    gate = asyncio.Event()

    @hf.task
    async def give(what: str) -> str:
        await gate.wait()
        return what

    jobs = [await give.enqueue(what) for what in ("good", "bad", "fine")]
    async with working(hf):
        for job in jobs:
            await comes_to(hf, job, State.RUNNING)
        gate.set()
        found = [await ends(hf, job) for job in jobs]
    assert [job.output for job in found] == ["good", None, "fine"]
    assert (found[1].state, found[1].error_code) == (State.FAILED, "result_not_storable")


async def test_heartbeats_that_fail_are_tried_again_without_a_flood(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """About once a second: a worker without a database must not burn its machine or fill its log."""
    outage = Outage(hf)
    go = asyncio.Event()

    @hf.task(lease=0.3)
    async def work() -> str:
        await go.wait()
        return "done"

    job = await work.enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        with outage.of("lease_extend_if_held"):
            await until(lambda: outage.refused.get("lease_extend_if_held", 0) >= 3)
        tried = outage.refused["lease_extend_if_held"]
        go.set()
        await ends(hf, job)
    assert tried < 10


async def test_a_reaper_lets_those_who_live_report_before_it_takes_their_jobs(
    hf_at: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could extend a lease while the database was away. Once it is back there is the time of a heartbeat for that."""
    outage, living, dead = Outage(hf_at), await start(hf_at.store), await start(hf_at.store)
    waited: list[float] = []
    really_pause = Reaper._pause

    async def pause(reaper: Reaper, seconds: float) -> None:
        waited.append(seconds)
        if seconds == hf_at.settings.heartbeat:
            assert await beat(hf_at.store, living)
        else:
            await really_pause(reaper, seconds)

    monkeypatch.setattr(Reaper, "_pause", pause)
    reaper = Reaper(hf_at.store, hf_at.settings, interval=0.01)
    with outage.of("job_reap", "worker_list"):
        passes = asyncio.create_task(reaper.run())
        await until(lambda: outage.refused.get("worker_list", 0) >= 2)
        clock.advance(301)
    try:
        await until(lambda: state_is(hf_at, dead.id, State.QUEUED))
    finally:
        reaper.stop()
        await passes
    assert (await hf_at.get(living.id)).run_id == living.run_id
    assert waited.count(hf_at.settings.heartbeat) == 1


async def state_is(hf: Holdfast, job_id: str, state: State) -> bool:
    return (await hf.get(job_id)).state is state
