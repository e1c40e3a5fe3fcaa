"""Tasks that run in processes of their own; those that must hang wait for nothing until they are killed."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

from holdfast import Holdfast, Snooze, current, step_sync

hf = Holdfast()


@hf.task(isolate=True)
def answer(value: int) -> dict[str, int]:
    return {"value": value, "pid": os.getpid()}


@hf.task(isolate=True)
async def answer_async(value: int) -> int:
    return value + 1


@hf.task(isolate=True)
def talk() -> None:
    run = current()
    run.progress(0.5, "talking")
    run.log.info("hello", step="greeting", duration_ms=1.5, odd={1, 2}, job=run.job_id)
    print("this goes to the worker's own output")


@hf.task(isolate=True)
def log_and_print() -> None:
    logging.getLogger("app.child").warning("from logging %d", 1)
    print("nobody asked for this")


@hf.task(isolate=True, max_attempts=1, capture=("print",))
def speak_and_die() -> None:
    logging.getLogger("app.child").warning("nobody asked for this")
    print("printed")
    print("to stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a program"], check=True)
    os.write(1, b"\xff no end of line")
    os.kill(os.getpid(), signal.SIGKILL)


@hf.task(isolate=True, capture=("print",))
def print_without_end() -> str:
    for _ in range(20):
        sys.stdout.write("x" * 1_000_000)
    for n in range(200_000):
        print("line", n)
    return "printed"


@hf.task(isolate=True)
async def stream_in_child() -> int:
    process = await asyncio.create_subprocess_exec("sh", "-c", "echo streamed", stdout=subprocess.PIPE)
    return await current().log.stream(process)


@hf.task(isolate=True, max_attempts=1)
def die(how: str) -> None:
    match how:
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(3)
        case "error":
            raise ValueError("in the child")


@hf.task(isolate=True)
def nap() -> str:
    if current().run_no == 1:
        raise Snooze(0)
    return "rested"


@hf.task(isolate=True, max_attempts=1, memory=600 * 1024 * 1024)
def eat() -> int:
    return len(bytearray(2 * 1024 * 1024 * 1024))


@hf.task(isolate=True)
def print_100_megabytes() -> str:
    line = "x" * 1024 * 1024
    for _ in range(100):
        print(line)
    return "printed"


@hf.task(isolate=True)
def log_100_megabytes() -> str:
    current().log.info("x" * 100 * 1024 * 1024, large="y" * 80 * 1024 * 1024)
    return "logged"


@hf.task(isolate=True, max_attempts=1, timeout=3)
def hang() -> None:
    threading.Event().wait()


@hf.task(isolate=True, max_attempts=1, timeout=600)
def hang_with_grandchild(pid_file: str) -> None:
    _start_grandchild(pid_file)
    threading.Event().wait()


@hf.task(isolate=True, max_attempts=1)
def leave_grandchild(pid_file: str) -> str:
    _start_grandchild(pid_file)
    return "left"


@hf.task(isolate=True, max_attempts=1, timeout=600)
def hang_and_ignore_sigterm(pid_file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(pid_file).write_text(str(os.getpid()))
    threading.Event().wait()


@hf.task(isolate=True, max_attempts=1, timeout=600)
def tidy_up_on_sigterm(note: str) -> None:
    def tidy(number: int, frame: object) -> None:
        Path(note).write_text("tidied")
        os._exit(0)

    signal.signal(signal.SIGTERM, tidy)
    Path(note).write_text("ready")
    threading.Event().wait()


@hf.task(isolate=True)
def wait_for_cancel(pid_file: str) -> None:
    Path(tempfile.gettempdir(), "half-done").write_text("…")
    Path(pid_file).write_text(tempfile.gettempdir())
    while True:
        current().check_cancelled()
        threading.Event().wait(0.01)


@hf.task(isolate=True, cancel="immediate")
def cancelled_at_once(pid_file: str) -> None:
    _start_grandchild(pid_file)
    threading.Event().wait()


@hf.task(isolate=True, backoff=(0,))
def two_steps(folder: str) -> int:
    def count() -> int:
        with Path(folder, "counted").open("a") as file:
            file.write("x")
        return 20

    counted = step_sync("count", count)
    if current().attempt == 1:
        os._exit(1)
    return counted + 1


@hf.task(isolate=True, max_attempts=1)
def return_what_is_no_json() -> object:
    return object()


def _start_grandchild(pid_file: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody waits for it: that is the point
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    Path(pid_file).write_text(str(child.pid))


@hf.task(isolate=True, needs="linear", max_attempts=1)
def pays_and_fails() -> None:
    current().spend(5, "ai")
    raise ConnectionError("connection refused")


@hf.task(isolate=True, max_attempts=1)
async def pays_without_waiting() -> None:
    current().spend(7, "ai")


@hf.task(isolate=True)
def fork_and_log() -> int | None:
    current().log.info("before")
    child = multiprocessing.get_context("fork").Process(target=_log_much)
    child.start()
    child.join(40)
    current().log.info("after")
    return child.exitcode


def _log_much() -> None:
    for _ in range(100):
        current().log.info("x" * 10_000)
