"""Processes that are forked after the first call: prefork servers, `multiprocessing`, tasks that fork."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import uvloop

from holdfast import Holdfast, State, current, forking
from tests.cases.steps import drain, messages
from tests.support.forks import exit_code, forked


@pytest.fixture
def program(database_url: str) -> Iterator[Holdfast]:
    hf = Holdfast(database_url)
    yield hf
    hf.close()


def adds(hf: Holdfast) -> Any:
    @hf.task(name="add")
    def add(n: int) -> int:
        return n

    return add


def numbers(hf: Holdfast) -> list[int]:
    return sorted(job.args["n"] for job in hf.jobs_sync(limit=200))


def test_a_child_that_is_forked_after_the_first_call_enqueues_and_reads(program: Holdfast) -> None:
    """So do its parent and its own child, before and after it has ended."""
    add = adds(program)
    add.enqueue_sync(1)

    def child() -> None:
        add.enqueue_sync(2)
        grandchild = forked(lambda: add.enqueue_sync(3))
        assert exit_code(grandchild) == 0
        assert numbers(program) == [1, 2, 3]
        program.close()

    assert exit_code(forked(child)) == 0
    add.enqueue_sync(4)
    assert numbers(program) == [1, 2, 3, 4]


def test_a_child_works_on_while_its_parent_closes_and_ends(database_url: str) -> None:
    """Nothing of what either wrote is lost: they share no connection, and on SQLite no lock."""
    hf = Holdfast(database_url)
    add = adds(hf)
    (closed, tell_closed), (done, tell_done) = os.pipe(), os.pipe()

    def parent() -> None:
        add.enqueue_sync(0)
        numbers(hf)
        forked(child)
        add.enqueue_sync(1)
        numbers(hf)
        hf.close()
        os.write(tell_closed, b".")

    def child() -> None:
        add.enqueue_sync(2)
        numbers(hf)
        os.read(closed, 1)
        for n in range(3, 20):
            add.enqueue_sync(n)
        os.write(tell_done, b".")

    assert exit_code(forked(parent)) == 0
    os.close(tell_done)
    assert os.read(done, 1) == b"."
    later = Holdfast(database_url)
    assert numbers(later) == list(range(20))
    later.close()


def test_a_fork_beside_threads_that_are_in_the_middle_of_calls_holds_up_nobody(program: Holdfast) -> None:
    """Whatever lock or statement the other threads were in, each child and each thread gets its answers."""
    add = adds(program)
    stop = threading.Event()
    failures: list[BaseException] = []

    def keep_calling() -> None:
        try:
            while not stop.is_set():
                program.get_sync(add.enqueue_sync(1000).id)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=keep_calling) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = [exit_code(forked(lambda n=n: add.enqueue_sync(n))) for n in range(8)]
    stop.set()
    for thread in threads:
        thread.join(40)
    assert codes == [0] * 8 and not failures
    found = program.call_sync(_all_below(program, 1000))
    assert found == list(range(8))


async def _all_below(hf: Holdfast, most: int) -> list[int]:
    found: list[int] = []
    cursor = None
    while page := await hf.jobs(cursor=cursor, limit=200):
        found += [job.args["n"] for job in page if job.args["n"] < most]
        cursor = page[-1].id
    return sorted(found)


def test_the_sessions_of_the_parent_outlive_a_child_that_ends(postgres_url: str) -> None:
    """The child closes none of them, and takes none of them along: the parent goes on in the same one."""
    hf = Holdfast(postgres_url)
    adds(hf).enqueue_sync(1)

    async def session() -> int:
        async with hf.transaction() as tx:
            return int((await tx.fetch("SELECT pg_backend_pid() AS pid"))[0]["pid"])

    before = hf.call_sync(session())
    for _ in range(3):
        assert run_to_its_end(lambda: hf.call_sync(session()) != before) == 0
    assert hf.call_sync(session()) == before
    hf.close()


def run_to_its_end(work: Callable[[], bool]) -> int:
    """In a child that ends as programs do, with all of Python's own clearing up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return exit_code(pid)
    try:
        ok = work()
        gc.collect()
        sys.stderr.flush()
        os._exit(0 if ok else 1)
    finally:
        os._exit(2)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_task_may_use_multiprocessing(program: Holdfast) -> None:
    """What its child logs and prints is not the run's; it enqueues, and the run and its worker go on."""
    add = adds(program)

    @program.task(name="forks", capture=("logging", "print"))
    async def forks() -> int:
        current().log.info("before")
        child = multiprocessing.get_context("fork").Process(target=logs_and_enqueues, args=(add,))
        child.start()
        child.join(40)
        current().log.info("after")
        return -1 if child.exitcode is None else child.exitcode

    job = forks.enqueue_sync()
    program.run_worker_sync(exit_when_idle=0.0)
    assert job.result_sync(timeout=0) == 0
    assert [line.message for line in program.logs_sync(program.get_sync(job.id).run_id)] == ["before", "after"]
    assert [one.args["n"] for one in program.jobs_sync() if one.task == "add"] == [7]


def logs_and_enqueues(add: Any) -> None:
    logging.getLogger("anything").warning("in the child")
    current().log.info("in the child")
    current().progress(0.5)
    print("in the child")
    add.enqueue_sync(7)


async def test_a_task_in_a_process_of_its_own_may_use_multiprocessing(isolated: ModuleType) -> None:
    """What its child logs does not run into what the run tells its worker."""
    job = await isolated.fork_and_log.enqueue()
    await drain(isolated.hf)
    assert await job.result(timeout=0) == 0
    assert await messages(isolated.hf, job) == ["before", "after"]


def test_a_child_of_a_program_with_a_worker_closes_its_own_part_alone(program: Holdfast) -> None:
    """The worker is the parent's: closing in the child does not wait for it."""
    add = adds(program)
    thread = threading.Thread(target=program.run_worker_sync)
    thread.start()
    add.enqueue_sync(1).result_sync(timeout=40)

    def child() -> None:
        add.enqueue_sync(2)
        program.close()

    assert exit_code(forked(child)) == 0
    job = add.enqueue_sync(3)
    assert job.result_sync(timeout=40) == 3
    assert program.get_sync(job.id).state is State.COMPLETED
    program.close()
    thread.join(40)
    assert not thread.is_alive()


def test_a_program_that_a_worker_starts_pauses_no_database(sqlite_url: str) -> None:
    """uvloop calls the hooks of a fork for it: on the loop's own thread, a transaction of that loop could not end meanwhile."""
    pauses: list[str] = []

    class Pauses:
        def pause_for_fork(self) -> None:
            pauses.append("pause")

        def resume_after_fork(self) -> None:
            pauses.append("resume")

    async def start() -> int:
        async with hf.transaction():
            process = await asyncio.create_subprocess_exec("true")
        return await process.wait()

    paused, hf = Pauses(), Holdfast(sqlite_url)
    forking.pause_for_fork(paused)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(start()) == 0
        runner.run(hf.aclose())
    assert pauses == []
    assert exit_code(forked(lambda: None)) == 0
    assert pauses == ["pause", "resume"]
