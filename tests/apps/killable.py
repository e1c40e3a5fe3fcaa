"""Tasks for tests that kill, freeze and stop what runs them. They tell where they are by lines in files of a folder."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path

from holdfast import Holdfast, Snooze, current
from tests.support.waiting import until, until_sync

hf = Holdfast()

PATIENCE_SECONDS = 120
AT_ONCE = (0,)


def mark(folder: str, event: str) -> None:
    """One line per event, each process into its own file; it is there even if the process is killed right after."""
    run = current()
    file = os.open(Path(folder, f"{os.getpid()}.marks"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{event} {run.job_id} {run.run_id} {os.getpid()}\n".encode())
    os.close(file)


def may_go(folder: str) -> bool:
    return Path(folder, f"{current().job_id}.go{current().run_no}").exists()


def first_half(folder: str) -> None:
    current().log.info("first half")
    mark(folder, "started")


def second_half(folder: str) -> str:
    current().log.info("second half")
    mark(folder, "done")
    return current().run_id


@hf.task(backoff=AT_ONCE, noun="Delivery")
async def hold(folder: str) -> str:
    first_half(folder)
    await until(lambda: may_go(folder), PATIENCE_SECONDS)
    return second_half(folder)


@hf.task(backoff=AT_ONCE, noun="Delivery")
def hold_in_thread(folder: str) -> str:
    first_half(folder)
    until_sync(lambda: may_go(folder), PATIENCE_SECONDS)
    return second_half(folder)


@hf.task(backoff=AT_ONCE, isolate=True)
def hold_isolated(folder: str) -> str:
    first_half(folder)
    until_sync(lambda: may_go(folder), PATIENCE_SECONDS)
    return second_half(folder)


def freeze() -> None:
    """A deadlock in C that keeps the interpreter lock: no thread and no signal handler of this process runs again."""
    mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


@hf.task(backoff=AT_ONCE, isolate=False)
def freeze_once(folder: str) -> str:
    first_half(folder)
    if current().run_no == 1:
        freeze()
    return second_half(folder)


@hf.task(backoff=AT_ONCE, isolate=True)
def freeze_isolated(folder: str) -> None:
    first_half(folder)
    freeze()


@hf.task(backoff=AT_ONCE)
async def block_the_loop(folder: str) -> str:
    first_half(folder)
    until_sync(lambda: may_go(folder), PATIENCE_SECONDS)
    return second_half(folder)


def freeze_when_asked(path: str) -> None:
    until_sync(lambda: os.path.exists(path), PATIENCE_SECONDS)
    freeze()


if "HOLDFAST_TEST_FREEZE" in os.environ:
    threading.Thread(target=freeze_when_asked, args=[os.environ["HOLDFAST_TEST_FREEZE"]], daemon=True).start()


@hf.task
async def tell_pid() -> int:
    return os.getpid()


@hf.task(backoff=AT_ONCE, max_attempts=50)
async def work(folder: str, seconds: float) -> str:
    mark(folder, "started")
    await spend(seconds)
    mark(folder, "done")
    return current().run_id


async def spend(seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


@hf.task(backoff=AT_ONCE, max_attempts=50)
async def work_and_log(folder: str, seconds: float) -> str:
    """Enough to need room in the store."""
    for number in range(100):
        current().log.info(f"line {number} {'x' * 200}")
    return await work(folder, seconds)


@hf.task(backoff=(0.2,), max_attempts=50)
async def work_with_memory(folder: str, seconds: float) -> str:
    """Fails where there is none, and is tried again."""
    hoard = bytearray(8 * 2**20)
    run_id = await work(folder, seconds)
    del hoard
    return run_id


@hf.task(backoff=AT_ONCE, max_attempts=50, isolate=False)
def work_in_thread(folder: str, seconds: float) -> str:
    return asyncio.run(work(folder, seconds))


@hf.task(backoff=AT_ONCE, max_attempts=50, isolate=True)
def work_isolated(folder: str, seconds: float) -> str:
    return asyncio.run(work(folder, seconds))


@hf.task(backoff=AT_ONCE, max_attempts=50, cancel="immediate")
async def work_until_cancelled(folder: str, seconds: float) -> str:
    return await work(folder, seconds)


@hf.task(backoff=(0, 0.2), max_attempts=50)
async def work_at_third_attempt(folder: str, seconds: float) -> str:
    """Every way of not ending: an error, and a snooze."""
    if current().attempt < 3:
        mark(folder, "started")
        await spend(seconds)
        raise ConnectionError("the other side hung up") if current().run_no % 2 else Snooze(0.05)
    return await work(folder, seconds)


@hf.task(backoff=AT_ONCE, max_attempts=2)
async def always_fail(folder: str, seconds: float) -> str:
    mark(folder, "started")
    await spend(seconds)
    raise ValueError("no such customer")


@hf.task(backoff=AT_ONCE)
async def never_end(folder: str) -> None:
    mark(folder, "started")
    await asyncio.Event().wait()


@hf.task(backoff=AT_ONCE, noun="Extraction")
async def run_out_of_memory(folder: str) -> None:
    """What the kernel does to a process that takes too much."""
    mark(folder, "started")
    os.kill(os.getpid(), signal.SIGKILL)


@hf.task(max_attempts=1)
async def segfault() -> None:
    ctypes.string_at(0)


@hf.task(max_attempts=1, isolate=True)
def segfault_isolated() -> None:
    ctypes.string_at(0)


@hf.task(backoff=AT_ONCE)
async def sync_rows(names: list[str]) -> int:
    """Replaces what is in the table `synced`; the first attempt's process dies half-way."""
    async with hf.transaction() as tx:
        await tx.execute("DELETE FROM synced")
        for place, name in enumerate(names):
            await tx.execute("INSERT INTO synced (name) VALUES ($1)", name)
            if current().attempt == 1 and place == len(names) // 2:
                os.kill(os.getpid(), signal.SIGKILL)
    return len(names)
