"""A worker without memory goes on or ends itself; it never keeps leases for runs that nobody will end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from holdfast import Holdfast, State, thread_starts
from holdfast.finish import Finisher
from holdfast.processes import heart, threads
from holdfast.processes.threads import TaskThreads
from holdfast.runlog.writer import LogWriter
from holdfast.thread_starts import ThreadStarts
from tests.cases.steps import PATIENCE_SECONDS, drain, in_a_thread
from tests.support.waiting import until


class Stillborn(threading.Thread):
    """What a MemoryError makes of a thread: it ends before it could say that it runs."""

    def _bootstrap(self) -> None:
        return

    def join(self, timeout: float | None = None) -> None:
        """By the interpreter at its end, where a pool has started it."""

    def let_go(self) -> None:
        """Of whoever waits for it."""
        self._started.set()  # type: ignore[attr-defined]


async def test_a_loop_that_waits_for_a_thread_that_never_began_gives_its_jobs_back(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No lease is kept up for it: its jobs are queued again, uncounted, and a new process is asked for."""
    monkeypatch.setattr(heart, "LOOP_BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr(thread_starts, "LOOKS", 2)
    stillborn, stuck, start = Stillborn(name="stillborn"), threading.Event(), LogWriter.start

    def start_without_memory(writer: LogWriter) -> None:
        thread_starts.start(stillborn)
        start(writer)

    monkeypatch.setattr(LogWriter, "start", start_without_memory)

    @hf.task
    async def fails() -> None:
        raise ValueError("is to be logged")

    @hf.task(priority=1)
    async def neighbour() -> None:
        await asyncio.Event().wait()

    jobs = [await neighbour.enqueue(), await fails.enqueue()]
    thread = in_a_thread(hf.worker(on_stuck=stuck.set))
    try:
        await until(stuck.is_set)
        back = [await hf.get(job.id) for job in jobs]
    finally:
        stillborn.let_go()
        await until(lambda: not thread.is_alive())
    assert [(job.state, job.attempt) for job in back] == [(State.QUEUED, 0)] * 2
    assert "A thread (stillborn) was started in this worker and never began" in caplog.text


def test_a_thread_that_begins_is_never_reported() -> None:
    """However often one looks while others start threads and wait for them."""
    starts, seen = ThreadStarts(), []
    for _ in range(20):
        beside = threading.Thread(target=lambda: seen.append(starts.stuck(0)))
        thread_starts.start(beside)
        beside.join()
    assert seen == [None] * 20


async def test_a_thread_that_never_begins_is_reported_once() -> None:
    """After several looks, as a process that was stopped may find its starts late."""
    stillborn, starts = Stillborn(name="stillborn"), ThreadStarts()
    waits = threading.Thread(target=thread_starts.start, args=[stillborn])
    waits.start()
    try:
        await until(lambda: starts.stuck(0) == "stillborn")
        assert [starts.stuck(0) for _ in range(10)] == [None] * 10
    finally:
        stillborn.let_go()
        waits.join()


async def test_a_pool_whose_thread_never_begins_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """`def` tasks and calls beside the loop get their threads from a pool, inside of `submit`."""
    pool, starts, made = thread_starts.Executor(1, thread_name_prefix="pool"), ThreadStarts(), list[Stillborn]()
    submits = threading.Thread(target=pool.submit, args=[int])

    def without_memory(**options: Any) -> Stillborn:
        made.append(Stillborn(**options))
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", without_memory)
        submits.start()
        try:
            await until(lambda: starts.stuck(0) == "pool")
        finally:
            made[0].let_go()
            submits.join()


async def test_starts_are_watched_for_ever_beside_threads_that_come_and_go() -> None:
    """No look takes a lock of the interpreter, with which garbage collection may stop the whole process."""
    looks = await asyncio.to_thread(subprocess.run, [sys.executable, "tools/thread_starts.py", "20000"], timeout=60)
    assert looks.returncode == 0


async def test_a_worker_whose_finisher_fails_writes_what_it_can_and_ends(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it no run would ever end, and the heart would keep their leases."""
    write, failures = Finisher._write_all, [MemoryError()]

    async def write_or_fail(finisher: Finisher) -> bool:
        if failures:
            raise failures.pop()
        return await write(finisher)

    monkeypatch.setattr(Finisher, "_write_all", write_or_fail)

    @hf.task
    async def good() -> str:
        return "ok"

    job = await good.enqueue()
    assert (await asyncio.wait_for(hf.worker().run(), PATIENCE_SECONDS)).reason == "stuck"
    assert await job.result(timeout=0) == "ok"


async def test_nobody_keeps_up_the_lease_of_a_run_that_could_not_be_ended(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back when that ends; what else the worker had is given back, and a new worker takes its place."""

    def without_memory(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("holdfast.run.note_end", without_memory)

    @hf.task
    async def good() -> None: ...

    await good.enqueue()
    worker = hf.worker()
    assert (await asyncio.wait_for(worker.run(), PATIENCE_SECONDS)).reason == "stuck"
    assert worker.running == {}


async def test_an_outcome_that_found_no_memory_is_written_later(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database has not refused it, so its job does not fail."""
    complete, failures = hf.store.job_complete_if_leased, [MemoryError()]

    async def complete_or_fail(completions: Any) -> Any:
        if failures:
            raise failures.pop()
        return await complete(completions)

    monkeypatch.setattr(hf.store, "job_complete_if_leased", complete_or_fail)

    @hf.task
    async def good() -> str:
        return "ok"

    job = await good.enqueue()
    assert (await drain(hf)).reason == "idle"
    assert await job.result(timeout=0) == "ok" and not failures


async def test_a_call_that_got_no_thread_is_not_made_by_another_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run has failed and its job may run elsewhere by then."""
    pool, go, made = TaskThreads(2), threading.Event(), list[str]()
    first = asyncio.create_task(pool.call(go.wait))
    await until(lambda: pool.working == 1)

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start new thread"):
        patch.setattr(threading.Thread, "start", no_thread)
        await pool.call(lambda: made.append("without a thread"))
    go.set()
    await first
    await pool.call(lambda: made.append("after it"))
    pool.close()
    assert made == ["after it"]


async def test_the_end_of_a_call_in_a_thread_is_told_until_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows of it: its run would wait without end."""
    monkeypatch.setattr(threads, "TELL_AGAIN_SECONDS", 0.0)
    loop, failures, pool = asyncio.get_running_loop(), [MemoryError(), MemoryError()], TaskThreads(1)
    tell = loop.call_soon_threadsafe

    def tell_or_fail(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return tell(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", tell_or_fail)
        assert await asyncio.wait_for(pool.call(lambda: "told"), PATIENCE_SECONDS) == "told"
    pool.close()
    assert not failures
