"""A log that is followed while it is written: from anywhere in it, over attempts, breaks and rescues."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, Job, RetryLater, State, current, follow
from holdfast.clock import ManualClock
from holdfast.errors import InvalidOption, JobNotFound, RunNotFound
from holdfast.job import LogLine
from holdfast.store.protocol import Claimed, Completion, LogBatch
from tests.cases.away import Outage
from tests.cases.steps import PATIENCE_SECONDS, comes_to, drain, ends, working
from tests.support.waiting import until


class Follower:
    """Follows beside the test; `seen` is what it was given."""

    def __init__(self, hf: Holdfast, job: Job[Any], **options: Any) -> None:
        self.seen: list[LogLine] = []
        self.task = asyncio.create_task(self._follow(hf, job.id, options))

    async def _follow(self, hf: Holdfast, job_id: str, options: dict[str, Any]) -> None:
        async for line in hf.follow(job_id, **options):
            self.seen.append(line)

    @property
    def messages(self) -> list[str]:
        return [line.message for line in self.seen]

    async def ended(self) -> list[str]:
        await asyncio.wait_for(self.task, PATIENCE_SECONDS)
        return self.messages


class Writer:
    """One job that is running, and what it says, without a worker."""

    def __init__(self, hf: Holdfast, job: Job[Any], run: Claimed) -> None:
        self._hf, self.job, self._run, self._no = hf, job, run, 0

    @classmethod
    async def start(cls, hf: Holdfast) -> Writer:
        @hf.task(max_attempts=5)
        async def talk() -> None: ...

        job = await talk.enqueue()
        claim = await hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=[talk.name], limit=1)
        return cls(hf, job, claim.jobs[0])

    async def say(self, count: int = 1) -> None:
        first, self._no = self._no + 1, self._no + count
        at = datetime.now(UTC)
        lines = [
            LogLine(run_id=self._run.run_id, no=no, level="info", message=str(no), created_at=at)
            for no in range(first, self._no + 1)
        ]
        assert await self._hf.store.log_append_if_leased([LogBatch(self._run.id, self._run.run_id, lines)])

    async def complete(self) -> None:
        assert await self._hf.store.job_complete_if_leased([Completion(self._run.id, self._run.run_id, None)])

    @property
    def numbers(self) -> list[str]:
        return [str(no) for no in range(1, self._no + 1)]


class Counting(Outage):
    """Counts what is asked of the store."""

    def __init__(self, hf: Holdfast) -> None:
        super().__init__(hf)
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return super().__getattr__(name)


async def test_lines_come_while_the_job_runs_and_end_with_it(hf: Holdfast) -> None:
    """Who follows a queued job sees each line once, before the run ends, and is let go when the job has ended."""
    told = asyncio.Event()

    @hf.task
    async def talk() -> None:
        current().log.info("one", step="first", duration_ms=2.5, files=3)
        await told.wait()
        current().log.error("two")

    follower = Follower(hf, job := await talk.enqueue())
    async with working(hf):
        await until(lambda: follower.messages == ["one"])
        told.set()
        assert await follower.ended() == ["one", "two"]
    first, second = follower.seen
    assert (first.no, first.step, first.duration_ms, first.metadata) == (1, "first", 2.5, {"files": 3})
    assert (second.no, second.level, second.run_id) == (2, "error", (await hf.get(job.id)).run_id)


async def test_a_follower_starts_where_it_left_off_or_after_the_end(hf: Holdfast) -> None:
    """`after` is the number of the last line seen; a run that has ended is read like one that goes on."""
    writer = await Writer.start(hf)
    await writer.say(30)
    middle = Follower(hf, writer.job, after=20)
    await until(lambda: len(middle.seen) == 10)
    await writer.say(5)
    await writer.complete()
    assert await middle.ended() == writer.numbers[20:]
    assert await Follower(hf, writer.job, after=33).ended() == ["34", "35"]
    assert await Follower(hf, writer.job, after=1000).ended() == []
    assert await Follower(hf, writer.job, run_no=1).ended() == writer.numbers


async def test_a_run_that_completes_its_job_in_a_transaction_is_heard_to_its_last_line(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was said just before, and what is said after the commit."""
    monkeypatch.setattr(follow, "LAST_WORDS_SECONDS", follow.SWEEP_SECONDS)  # a busy machine may take longer to write them

    @hf.task
    async def talk() -> None:
        current().log.info("before")
        async with hf.transaction() as tx:
            await current().complete(tx=tx)
        current().log.success("after")

    job = await talk.enqueue()
    follower = Follower(hf, job)
    await until(lambda: follower.task.get_stack())
    await drain(hf)
    assert await follower.ended() == ["before", "after"]
    assert [line.message for line in await hf.logs((await hf.get(job.id)).run_id)] == ["before", "after"]


async def test_the_next_attempts_are_followed_too(hf: Holdfast) -> None:
    """A follower of a job sees the log of every attempt; one of a run stops at that run's end."""
    go = asyncio.Event()

    @hf.task
    async def third_time_lucky() -> None:
        current().log.info(f"attempt {current().attempt}")
        if current().attempt < 3:
            raise RetryLater(0)
        await go.wait()

    job = await third_time_lucky.enqueue()
    whole, first = Follower(hf, job), Follower(hf, job, run_no=1)
    async with working(hf):
        await until(lambda: "attempt 3" in whole.messages)
        late = Follower(hf, job)
        await until(lambda: late.messages)
        go.set()
        seen = [message for message in await whole.ended() if message.startswith("attempt")]
        assert seen == ["attempt 1", "attempt 2", "attempt 3"]
        assert [message for message in await first.ended() if message.startswith("attempt")] == ["attempt 1"]
        assert await late.ended() == ["attempt 3"]


async def test_a_job_cancelled_in_the_queue_lets_its_followers_go(hf: Holdfast) -> None:
    """There will be no run to wait for."""

    @hf.task
    async def never() -> None: ...

    follower = Follower(hf, job := await never.enqueue())
    await hf.cancel(job.id)
    assert await follower.ended() == []


async def test_a_rescued_run_ends_with_the_reapers_line(hf_at: Holdfast, clock: ManualClock) -> None:
    """The follower learns why the run stopped talking, and waits for the next attempt."""
    writer = await Writer.start(hf_at)
    await writer.say()
    one_run, whole = Follower(hf_at, writer.job, run_no=1), Follower(hf_at, writer.job)
    await until(lambda: one_run.messages and whole.messages)
    clock.advance(hours=1)
    assert (await hf_at.reap()).requeued == [writer.job.id]
    first, last = await one_run.ended()
    assert first == "1" and "unresponsive" in last
    await until(lambda: whole.messages == [first, last])
    await hf_at.cancel(writer.job.id)
    await whole.ended()


async def test_a_broken_stream_loses_and_doubles_nothing(postgres_url: str) -> None:
    """While lines are written, the listening connection is cut again and again."""
    hf = Holdfast(postgres_url)
    writer = await Writer.start(hf)
    reading = Holdfast(postgres_url)
    follower = Follower(reading, writer.job)
    other = Follower(reading, writer.job, after=0)
    admin: Any = await asyncpg.connect(postgres_url)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE 'LISTEN%'"
    try:
        for _ in range(4):
            await writer.say(50)
            assert await until(lambda: admin.fetch(cut))
            await writer.say(700)
            await until(lambda: len(follower.seen) >= int(writer.numbers[-1]))
        await writer.complete()
        assert await follower.ended() == await other.ended() == writer.numbers
    finally:
        await admin.close()
        await reading.aclose()
        await hf.aclose()


async def test_a_database_away_for_a_moment_loses_and_doubles_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading fails for a while; the follower only waits longer."""
    monkeypatch.setattr(follow, "SWEEP_SECONDS", 0.1)
    outage = Outage(hf)
    writer = await Writer.start(hf)
    await writer.say(10)
    follower = Follower(hf, writer.job)
    await until(lambda: len(follower.seen) == 10)
    with outage.of("log_read", "log_read_new", "run_open"):
        await writer.say(10)
        await until(lambda: len(outage.refused) >= 2 or sum(outage.refused.values()) > 3)
    await writer.say(10)
    await writer.complete()
    assert await follower.ended() == writer.numbers


async def test_a_thousand_followers_of_one_run_cost_one_query_per_batch(hf: Holdfast) -> None:
    """Whoever follows, the lines of a batch are read once, and all get all of them."""
    counting = Counting(hf)
    writer = await Writer.start(hf)
    followers = [Follower(hf, writer.job) for _ in range(1000)]
    await writer.say()
    await until(lambda: all(follower.seen for follower in followers), PATIENCE_SECONDS)
    counting.asked.clear()
    began = asyncio.get_running_loop().time()
    for batch in range(1, 11):
        await writer.say(10)
        await until(lambda: all(len(follower.seen) == 1 + 10 * batch for follower in followers), PATIENCE_SECONDS)  # noqa: B023
    sweeps = asyncio.get_running_loop().time() - began + 1
    assert counting.asked["log_read"] == 0
    assert counting.asked["log_read_new"] <= 10 + sweeps
    assert counting.asked["job_get"] == 0
    await writer.complete()
    assert all([await follower.ended() == writer.numbers for follower in followers])
    assert counting.asked["job_get"] + counting.asked["run_list"] <= 2


async def test_two_applications_share_no_hub_but_the_same_lines(database_url: str) -> None:
    """A writer elsewhere is heard: by its notification, or by the change of the file."""
    there, here = Holdfast(database_url), Holdfast(database_url)
    writer = await Writer.start(there)
    follower = Follower(here, writer.job)
    for batch in range(5):
        await writer.say(20)
        await until(lambda: len(follower.seen) == 20 * (batch + 1))  # noqa: B023
    await writer.complete()
    assert await follower.ended() == writer.numbers
    await there.aclose()
    await here.aclose()


async def test_a_follower_who_leaves_leaves_nothing_behind(hf: Holdfast) -> None:
    """Breaking out of the loop ends the listening."""
    writer = await Writer.start(hf)
    await writer.say()
    async for _ in hf.follow(writer.job.id):
        assert hf.store.listening
        break
    await until(lambda: not hf.store.listening)


def test_a_sync_program_can_follow(database_url: str) -> None:
    """The same lines through the sync twin, also for one that leaves early."""
    hf = Holdfast(database_url)
    writer = hf.call_sync(Writer.start(hf))
    hf.call_sync(writer.say(3))
    lines = hf.follow_sync(writer.job.id)
    assert next(lines).message == "1"
    lines.close()  # type: ignore[attr-defined]
    hf.call_sync(writer.complete())
    assert [line.message for line in hf.follow_sync(writer.job.id, after=1)] == ["2", "3"]
    run_id = hf.get_sync(writer.job.id).run_id
    assert [line.no for line in hf.logs_sync(run_id, newest=True, limit=2)] == [2, 3]
    assert hf.events_sync(writer.job.id) == []
    hf.close()


async def test_what_is_not_there_is_not_followed(hf: Holdfast) -> None:
    """Neither a job nor a run of it, each with an error of its own; a wrong number is refused."""
    for unknown in ("x", "00000000-0000-7000-8000-000000000000"):
        with pytest.raises(JobNotFound):
            await anext(hf.follow(unknown))
    writer = await Writer.start(hf)
    with pytest.raises(RunNotFound, match="its runs are: 1"):
        await anext(hf.follow(writer.job.id, run_no=7))
    with pytest.raises(InvalidOption, match="after"):
        await anext(hf.follow(writer.job.id, after=-1))


async def test_logs_are_read_by_number_level_step_and_text(hf: Holdfast) -> None:
    """Filters, and the newest lines without reading the others."""

    @hf.task
    async def talk() -> None:
        current().log.info("Cloning", step="clone")
        current().log.warning("slow 100%", step="clone")
        current().log.error("broken", step="scan", file="A_b.py")
        current().log.info("done")

    job = await talk.enqueue()
    await drain(hf)
    run_id = (await hf.get(job.id)).run_id

    async def numbers(**where: Any) -> list[int]:
        return [line.no for line in await hf.logs(run_id, **where)]

    assert await numbers(newest=True, limit=2) == [3, 4]
    assert await numbers(levels=["warning", "error"]) == [2, 3]
    assert await numbers(step="clone", before=2) == [1]
    assert await numbers(search="CLON") == [1]
    assert await numbers(search="100%") == [2]
    assert await numbers(search="a_B") == [3]
    assert await numbers(after=1, newest=True, limit=1, levels=("info",)) == [4]
    for wrong in ({"levels": "error"}, {"levels": ["loud"]}, {"search": "\0"}, {"limit": 0}, {"before": "x"}):
        with pytest.raises(InvalidOption):
            await hf.logs(run_id, **wrong)


async def test_events_are_read_by_job_and_by_tenant(hf: Holdfast) -> None:
    """Of a job all, oldest first; of a tenant newest first, by pages."""

    @hf.task
    async def never() -> None: ...

    mine = [await never.options(tenant="acme").enqueue() for _ in range(3)]
    other = await never.options(tenant="other").enqueue()
    for job in (*mine, other):
        await hf.cancel(job.id, by="ana")
    await hf.retry(mine[0].id, by="bob")
    of_job = await hf.events(mine[0].id)
    assert [event.actor for event in of_job] == ["ana", "bob"]
    first = await hf.events(tenant="acme", limit=3)
    rest = await hf.events(tenant="acme", before=first[-1].id)
    assert [event.job_id for event in (*first, *rest)] == [mine[0].id, mine[2].id, mine[1].id, mine[0].id]
    assert {event.tenant for event in await hf.events(limit=200)} == {"acme", "other"}
    with pytest.raises(InvalidOption):
        await hf.events(mine[0].id, tenant="acme")


async def test_a_run_that_was_given_back_is_not_the_end(hf: Holdfast) -> None:
    """A worker that is stopped gives its job back; whoever follows sees the next run."""
    go = asyncio.Event()

    @hf.task(cancel="immediate")
    async def talk() -> None:
        current().log.info(f"run {current().run_no}")
        await go.wait()

    follower = Follower(hf, job := await talk.enqueue())
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await until(lambda: "run 1" in follower.messages)
    go.set()
    async with working(hf):
        await ends(hf, job)
    assert [message for message in await follower.ended() if message.startswith("run")] == ["run 1", "run 2"]
