"""The writer of run logs: live, bounded, exact about what it drops, never in the way of the job."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import StorageError
from holdfast.runlog import desk
from holdfast.store.protocol import LogBatch
from tests.cases.away import Outage
from tests.cases.steps import comes_to, drain, ends, lines, messages, working
from tests.support.apart import run_apart
from tests.support.waiting import until


def counted_in(text: str) -> int:
    """How many lines a log says are missing."""
    return int(text.split(" ", 1)[0]) if "dropped: " in text else 0


async def test_a_task_that_never_awaits_is_heard_while_it_runs(hf: Holdfast, database_url: str) -> None:
    """Its lines are written by a thread of their own, however long the event loop is blocked."""

    @hf.task
    async def hog() -> None:
        run_id = current().run_id
        current().log.info("early")

        async def read() -> None:
            other = Holdfast(database_url)
            await until(lambda: other.logs(run_id))
            await other.aclose()

        run_apart(read())

    job = await hog.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).state is State.COMPLETED


async def test_a_worker_whose_tasks_say_nothing_has_no_writer(hf: Holdfast) -> None:
    """The thread and its connection are there from the first line on, and gone with the worker."""
    seen: list[bool] = []
    others = set(threading.enumerate())

    def is_there() -> bool:
        return any(thread.name == "holdfast log writer" for thread in set(threading.enumerate()) - others)

    @hf.task
    async def work(say: bool) -> None:
        if say:
            current().log.info("hello")
        seen.append(is_there())

    await work.enqueue(False)
    await drain(hf)
    await work.enqueue(True)
    await drain(hf)
    assert seen == [False, True] and not is_there()


async def test_lines_of_many_runs_are_written_together(hf: Holdfast) -> None:
    """Fifty runs that talk at the same time take a few statements, not fifty."""
    append, sizes = hf.store.log_append_if_leased, []
    go = asyncio.Event()

    async def count(batches: list[LogBatch]) -> set[str]:
        sizes.append(len(batches))
        return await append(batches)

    hf.store.log_append_if_leased = count  # type: ignore[method-assign,assignment]
    waiting = 0

    @hf.task
    async def talk() -> None:
        nonlocal waiting
        waiting += 1
        await go.wait()
        current().log.info("hello")

    jobs = await hf.enqueue_many([talk.job() for _ in range(50)])
    async with working(hf, concurrency=50):
        await until(lambda: waiting == 50)
        go.set()
        for job in jobs:
            await ends(hf, job)
    assert sum(sizes) == 50 and len(sizes) <= 25
    assert [await messages(hf, job) for job in jobs] == [["hello"]] * 50


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_task_changes_after_logging_it_stays_as_it_was(hf: Holdfast, kind: str) -> None:
    """The log tells what was, not what became of it."""

    def talk() -> None:
        seen: list[int] = []
        for n in range(3):
            seen.append(n)
            current().log.info("seen", numbers=seen)

    @hf.task
    async def talk_async() -> None:
        talk()

    @hf.task
    def talk_in_thread() -> None:
        talk()

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    await drain(hf)
    assert [line.metadata for line in await lines(hf, job)] == [{"numbers": list(range(n + 1))} for n in range(3)]


async def test_beyond_the_limit_of_lines_the_rest_is_counted_and_the_error_is_kept(database_url: str) -> None:
    """One line says that the limit is reached, one how many are missing; how the run ended is never among them."""
    hf = Holdfast(database_url, log_lines_max=10)

    @hf.task(max_attempts=1)
    async def talk() -> None:
        for n in range(25):
            current().log.info(f"line {n}")
        raise ValueError("at the end")

    job = await talk.enqueue()
    await drain(hf)
    said = await lines(hf, job)
    assert [line.message for line in said] == [
        *(f"line {n}" for n in range(10)),
        "This run has reached 10 log lines; the rest is dropped.",
        "15 lines dropped: the run had reached 10.",
        "Attempt 1 of 1 failed: ValueError: at the end",
    ]
    assert [line.no for line in said] == list(range(1, 14))
    await hf.aclose()


@pytest.mark.case("I17")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_does_not_fit_while_the_database_is_away_is_said_where_it_is_missing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The memory is bounded; once the database is back the log tells exactly how many lines are gone, at their place."""
    monkeypatch.setattr(desk, "BYTES_OF_A_RUN_MAX", 10_000)
    monkeypatch.setattr(desk, "BYTES_ALWAYS", 0)
    outage, talked, go = Outage(hf), threading.Event(), threading.Event()

    def talk() -> None:
        current().log.info("before")
        asked.wait(60)
        for n in range(500):
            current().log.info(f"line {n}")
        talked.set()

    asked = threading.Event()

    @hf.task
    async def talk_async() -> None:
        await asyncio.to_thread(talk)
        await asyncio.to_thread(go.wait, 60)
        current().log.info("after")

    @hf.task
    def talk_in_thread() -> None:
        talk()
        go.wait(60)
        current().log.info("after")

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    async with working(hf):
        with outage.of("log_append_if_leased"):
            await until(lambda: outage.refused.get("log_append_if_leased", 0) >= 1)
            asked.set()
            await until(talked.is_set)

        async def told() -> bool:
            return any(counted_in(message) for message in await messages(hf, job))

        await until(told)
        go.set()
        assert (await ends(hf, job)).state is State.COMPLETED
    before, *kept, dropped, after = await messages(hf, job)
    assert (before, after) == ("before", "after")
    assert kept == [f"line {n}" for n in range(len(kept))] and dropped.endswith("dropped: the database was away.")
    assert counted_in(dropped) + len(kept) == 500 and len(kept) < 100


async def test_a_thread_that_logs_faster_than_the_database_writes_waits_for_it(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is dropped, and no more than the bound is held in memory."""
    monkeypatch.setattr(desk, "BYTES_OF_A_RUN_MAX", 20_000)
    most = 0

    @hf.task
    def talk() -> None:
        nonlocal most
        for n in range(3000):
            current().log.info(f"line {n}")
            most = max(most, current()._link.buffer.bytes_waiting)  # type: ignore[attr-defined]

    monkeypatch.setattr(desk, "BYTES_ALWAYS", 0)
    job = await talk.enqueue()
    await drain(hf)
    found = await hf.logs((await hf.get(job.id)).run_id, limit=5000)
    assert [line.message for line in found] == [f"line {n}" for n in range(3000)]
    assert most < 21_000


async def test_a_database_that_hangs_holds_up_neither_the_loop_nor_the_end_of_a_job(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An async task waits for room only for moments; a run that ends leaves its lines behind, counted in the worker's log."""
    monkeypatch.setattr(desk, "BYTES_OF_A_RUN_MAX", 10_000)
    monkeypatch.setattr(desk, "BYTES_ALWAYS", 0)
    monkeypatch.setattr("holdfast.runlog.logs.STUCK_SECONDS", 0.2)
    took = 0.0

    async def hang(_: object) -> set[str]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    hf.store.log_append_if_leased = hang  # type: ignore[method-assign,assignment]

    @hf.task
    async def talk() -> str:
        nonlocal took
        began = asyncio.get_running_loop().time()
        for n in range(2000):
            current().log.info(f"line {n}")
        took = asyncio.get_running_loop().time() - began
        return "done"

    job = await talk.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        await drain(hf)
    assert await job.result(timeout=0) == "done" and took < 20  # of the loop; 2000 times a moment would be 100
    assert f"2000 log lines of job {job.id} could not be kept." in caplog.messages


@pytest.mark.case("L15", "L28")
async def test_lines_of_a_run_that_lost_its_lease_are_refused(
    hf_at: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The old run keeps what it had said before; nobody complains of lines that are lost by right."""
    outage, go = Outage(hf_at), asyncio.Event()
    refused: list[bool] = []

    @hf_at.task(backoff=(0,))
    async def talk() -> None:
        run = current()
        run.log.info(f"run {run.run_no}")
        if run.run_no == 1:
            await go.wait()
            run.log.info("late")
            refused.append(await until(lambda: run._link.buffer.refused))  # type: ignore[attr-defined]
            run.log.info("later")

    job = await talk.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with working(hf_at):
            await comes_to(hf_at, job, State.RUNNING)
            await until(lambda: messages(hf_at, job))
            with outage.of("lease_extend_if_held"):
                clock.advance(301)
                assert (await hf_at.reap()).requeued == [job.id]
                go.set()
                await ends(hf_at, job)
                await until(lambda: refused)
    new, old = await hf_at.runs(job.id)
    assert [line.message for line in await hf_at.logs(new.run_id)] == ["run 2"]
    told = [line.message for line in await hf_at.logs(old.run_id)]
    assert told[0] == "run 1" and not {"late", "later"} & set(told)
    assert not [message for message in caplog.messages if "could not be kept" in message]


async def test_a_transaction_that_completes_a_job_holds_up_nobody_elses_lines(postgres_url: str) -> None:
    """It has locked the job's row, and how long it lasts is the task's affair."""
    hf = Holdfast(postgres_url)
    completed, heard = asyncio.Event(), asyncio.Event()

    @hf.task
    async def complete_slowly() -> None:
        current().log.info("before")
        async with hf.transaction() as tx:
            await current().complete(tx=tx)
            current().log.info("meanwhile")
            completed.set()
            await heard.wait()

    @hf.task
    async def talk() -> None:
        current().log.info("hello")

    slow = await complete_slowly.enqueue()
    async with working(hf):
        await completed.wait()
        other = await talk.enqueue()
        await ends(hf, other)
        assert await messages(hf, other) == ["hello"]
        heard.set()
        await ends(hf, slow)
    assert await messages(hf, slow) == ["before", "meanwhile"]
    await hf.aclose()


@pytest.mark.case("logger-5")
async def test_a_line_that_the_database_refuses_is_lost_alone(hf: Holdfast) -> None:
    """The lines around it are kept, those of other runs too, and the log says that one is missing."""
    append = hf.store.log_append_if_leased

    async def refuse(batches: list[LogBatch]) -> set[str]:
        if any(line.message == "bad" for batch in batches for line in batch.lines):
            raise StorageError("The database refused a statement: invalid input")
        return await append(batches)

    hf.store.log_append_if_leased = refuse  # type: ignore[method-assign,assignment]

    @hf.task
    async def talk(words: list[str]) -> None:
        for word in words:
            current().log.info(word)

    bad, good = await talk.enqueue(["a", "b", "bad", "c"]), await talk.enqueue(["d"])
    await drain(hf)
    assert await messages(hf, bad) == ["a", "b", "c", "1 line dropped: the database refused them."]
    assert await messages(hf, good) == ["d"]


@pytest.mark.case("logger-5")
async def test_a_database_that_refuses_every_line_fails_no_job(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """What is lost is counted in the worker's own log, and the search for bad lines ends soon."""
    asked = 0

    async def refuse(batches: list[LogBatch]) -> set[str]:
        nonlocal asked
        asked += 1
        raise StorageError("The database refused a statement: no such table")

    hf.store.log_append_if_leased = refuse  # type: ignore[method-assign,assignment]

    @hf.task
    async def talk() -> str:
        for n in range(1000):
            current().log.info(f"line {n}")
        return "done"

    job = await talk.enqueue()
    with caplog.at_level(logging.WARNING, "holdfast"):
        await drain(hf)
    assert await job.result(timeout=0) == "done" and asked < 200
    assert f"1000 log lines of job {job.id} could not be kept." in caplog.messages


@pytest.mark.case("I17")
async def test_a_run_that_ends_during_a_short_outage_keeps_its_lines(hf: Holdfast) -> None:
    """A connection that breaks costs no line: the end of a run waits a moment for the database."""
    outage = Outage(hf)

    @hf.task
    async def talk() -> str:
        current().log.info("kept")
        return "done"

    job = await talk.enqueue()
    async with working(hf):
        with outage.of("log_append_if_leased"):
            await until(lambda: outage.refused.get("log_append_if_leased", 0) >= 1)
        assert await job.result(timeout=40) == "done"
    assert await messages(hf, job) == ["kept"]


async def test_progress_is_written_a_few_times_a_second_and_its_last_word_is_kept(hf: Holdfast) -> None:
    """However often a task tells."""
    setting, told = hf.store.progress_set_if_leased, 0

    async def count(*values: Any) -> bool:
        nonlocal told
        told += 1
        return await setting(*values)

    hf.store.progress_set_if_leased = count  # type: ignore[method-assign]

    @hf.task
    async def work() -> None:
        for n in range(101):
            current().progress(n / 100)
            await asyncio.sleep(0)

    job = await work.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).progress == 1.0 and told <= 25
