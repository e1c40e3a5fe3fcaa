"""The process around a worker: what fails in it without memory asks for a new one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from holdfast.cli.call import Call
from holdfast.cli.failures import describe
from holdfast.cli.worker_process import Wish, WorkerProcess
from holdfast.settings import Settings


class FakeWorker:
    def __init__(self) -> None:
        self.asked: list[str] = []

        self.settings = Settings()

    def stop(self, reason: str = "stopped") -> None:
        self.asked.append(reason)

    def found_stuck(self) -> None:
        self.asked.append("stuck")


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def process(worker: FakeWorker) -> WorkerProcess:
    process = WorkerProcess(cast(Call, None), Wish())
    process._worker = cast(Any, worker)
    process._print_end_of_thread = lambda told: None
    return process


@pytest.mark.parametrize(
    ("context", "asked"),
    [
        ({"exception": MemoryError(), "handle": object()}, ["stuck"]),
        ({"exception": ValueError(), "handle": object()}, []),
        ({"exception": MemoryError(), "future": object()}, []),
    ],
    ids=["a callback without memory", "a callback with a mistake", "a task that nobody waits for"],
)
async def test_a_callback_without_memory_ends_the_worker(
    process: WorkerProcess, worker: FakeWorker, context: dict[str, Any], asked: list[str]
) -> None:
    """Whoever was to be woken by it would wait without end."""
    process._callback_failed(asyncio.get_running_loop(), {"message": "a callback failed", **context})
    assert worker.asked == asked


@pytest.mark.parametrize(("name", "asked"), [("holdfast heart", ["stuck"]), ("Thread-7", [])])
def test_a_thread_of_holdfasts_own_that_fails_ends_the_worker(
    process: WorkerProcess, worker: FakeWorker, name: str, asked: list[str]
) -> None:
    """One of the application's own does not."""
    died = threading.ExceptHookArgs((MemoryError, MemoryError(), None, threading.Thread(name=name)))
    process._thread_failed(died)
    assert worker.asked == asked


async def test_a_signal_stops_a_worker_that_can_start_no_thread(
    process: WorkerProcess, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drains as any other; only the net below it is missing."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    process._loop = asyncio.get_running_loop()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    process._signalled(15, None)
    await asyncio.sleep(0)
    assert worker.asked == ["stopped"]


def test_a_process_that_ends_without_memory_says_so_and_not_that_this_is_a_bug() -> None:
    """Whoever reads it has a limit to raise."""
    code, sentence = describe(MemoryError())
    assert code == "out_of_memory" and sentence.startswith("This process has no memory left; give it more")
