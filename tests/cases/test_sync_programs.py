"""Programs without an event loop, and programs that start several of them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, State
from holdfast.errors import HoldfastError, JobCancelled, JobFailed, JobNotFound, ResultTimeout, StorageUnavailable
from tests.support.waiting import until_sync


@pytest.fixture
def program(database_url: str) -> Iterator[Holdfast]:
    hf = Holdfast(database_url)
    yield hf
    hf.close()


def test_every_verb_has_a_sync_twin(program: Holdfast) -> None:
    """Migrate, enqueue, look, work, wait, cancel, retry, reap: no event loop anywhere in the program."""

    @program.task(max_attempts=1)
    def halve(n: int) -> float:
        if n < 0:
            raise ValueError("negative")
        return n / 2

    assert program.migrate_sync() == []
    good = halve.enqueue_sync(8)
    bad, gone = program.enqueue_many_sync([halve.job(-1), halve.options(tenant="acme").job(2)])
    assert program.cancel_sync(gone.id, by="ana").state is State.CANCELLED
    end = program.run_worker_sync(exit_when_idle=0.0)
    assert (end.reason, end.jobs) == ("idle", 2)
    assert good.result_sync(timeout=40) == 4
    with pytest.raises(JobFailed, match="ValueError: negative"):
        bad.result_sync()
    with pytest.raises(JobCancelled):
        gone.result_sync()
    assert program.get_sync(good.id).state is State.COMPLETED
    assert [job.id for job in program.jobs_sync(tenant="acme")] == [gone.id]
    assert program.retry_sync(gone.id).state is State.QUEUED
    with pytest.raises(ResultTimeout):
        gone.result_sync(timeout=0)
    assert not program.reap_sync()
    with pytest.raises(JobNotFound):
        program.get_sync("nonsense")


def test_options_work_in_sync_programs(program: Holdfast) -> None:
    """The bound task has the twin too."""

    @program.task
    def work() -> None: ...

    first = work.options(unique="k").enqueue_sync()
    again = work.options(unique="k").enqueue_sync()
    assert (again.id, again.created) == (first.id, False)


def test_threads_of_a_sync_program_share_one_object(program: Holdfast) -> None:
    """A web server with threads enqueues from all of them."""

    @program.task
    def work(n: int) -> None: ...

    threads = [threading.Thread(target=work.enqueue_sync, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(job.args["n"] for job in program.jobs_sync()) == list(range(16))


def test_closing_ends_a_worker_in_another_thread(program: Holdfast) -> None:
    """`hf.close()` stops what this object runs before it closes the database."""

    @program.task
    def work() -> None: ...

    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(program.run_worker_sync().reason))
    thread.start()
    work.enqueue_sync().result_sync(timeout=40)
    program.close()
    thread.join(60)
    assert ended == ["stopped"]


async def test_a_sync_twin_inside_an_event_loop_is_refused(hf: Holdfast) -> None:
    """It would block the loop; the sentence says what to await instead."""

    @hf.task
    async def work() -> None: ...

    with pytest.raises(HoldfastError, match="await the async one instead"):
        work.enqueue_sync()
    assert await hf.jobs() == []


def test_a_sync_task_may_use_the_sync_twins(program: Holdfast) -> None:
    """From the worker's threads, also while the worker itself runs on the same background loop."""

    @program.task
    def child(n: int) -> int:
        return n * 2

    @program.task
    def parent() -> int:
        return child.enqueue_sync(21).result_sync(timeout=40)

    job = parent.enqueue_sync()
    program.run_worker_sync(exit_when_idle=0.0)
    assert job.result_sync(timeout=0) == 42


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_one_object_serves_several_event_loops_one_after_another(database_url: str) -> None:
    """Scripts call asyncio.run more than once; each loop gets connections of its own."""
    assert _sums_in_three_loops(database_url) == [1, 2, 3]
    gc.collect()  # the connections of the loops that are gone: here, where their complaint is expected


def _sums_in_three_loops(database_url: str) -> list[int]:
    hf = Holdfast(database_url)

    @hf.task
    async def add(a: int, b: int) -> int:
        return a + b

    async def once(n: int) -> int:
        job = await add.enqueue(n, 1)
        await hf.run_worker(exit_when_idle=0.0)
        return await job.result(timeout=40)

    sums = [asyncio.run(once(n)) for n in range(3)]
    assert add.enqueue_sync(1, 1).state is State.QUEUED
    asyncio.run(hf.aclose())
    return sums


def test_a_worker_can_be_watched_from_a_sync_program(program: Holdfast) -> None:
    """While the worker runs in one thread, another sees the job's states."""
    go = threading.Event()

    @program.task
    def wait() -> str:
        go.wait(60)
        return "seen"

    job = wait.enqueue_sync()
    thread = threading.Thread(target=lambda: program.run_worker_sync(exit_when_idle=0.0))
    thread.start()
    until_sync(lambda: program.get_sync(job.id).state is State.RUNNING)
    go.set()
    assert job.result_sync(timeout=40) == "seen"
    thread.join(60)


def test_closing_answers_calls_of_other_threads(program: Holdfast) -> None:
    """Those that wait for a result get a typed error instead of waiting for ever."""

    @program.task
    def work() -> None: ...

    job = work.enqueue_sync()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            job.result_sync()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    until_sync(lambda: len(program._portal._background._calls) == 3)  # type: ignore[union-attr]
    program.close()
    for thread in threads:
        thread.join(40)
    assert [type(failure) for failure in failures] == [StorageUnavailable] * 3
    assert "was closed during the call" in str(failures[0])


def test_calls_that_come_while_it_is_closed_are_all_answered(program: Holdfast) -> None:
    """With a result or a typed error; none falls between the end of the loop and that of its thread."""

    @program.task
    def work() -> None: ...

    answers: list[object] = []
    stop = threading.Event()

    def keep_calling() -> None:
        while not stop.is_set():
            try:
                answers.append(work.enqueue_sync().state)
            except BaseException as failure:
                answers.append(type(failure))

    threads = [threading.Thread(target=keep_calling, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        reached = len(answers) + 20
        until_sync(lambda reached=reached: len(answers) > reached)
        program.close()
    stop.set()
    for thread in threads:
        thread.join(40)
    assert not any(thread.is_alive() for thread in threads)
    assert set(answers) <= {State.QUEUED, StorageUnavailable}


def test_a_finalizer_in_the_thread_that_writes_cannot_wait_for_itself(sqlite_url: str) -> None:
    """The collector may run it there: its call is refused, and all others are answered."""
    hf = Holdfast(sqlite_url)

    @hf.task
    def work() -> None: ...

    refused: list[HoldfastError] = []

    def finalize(session: object) -> None:
        try:
            work.enqueue_sync()
        except HoldfastError as error:
            refused.append(error)

    for thread in (hf.store._writer, hf.store._readers):  # type: ignore[attr-defined]
        hf.call_sync(asyncio.wait_for(thread.run(finalize), 40))
    assert ["would wait for itself" in str(error) for error in refused] == [True, True]
    assert work.enqueue_sync().state is State.QUEUED
    hf.close()
