"""One worker as a process: its event loop, its signals, and its end, also when a task in it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from holdfast.app import Holdfast
from holdfast.cli.apps import app_with_tasks, find_app_name
from holdfast.cli.call import Call
from holdfast.cli.failures import INTERRUPTED, OK, STORAGE, AppUnusable
from holdfast.cli.output import say
from holdfast.cli.process_log import log_to_stderr
from holdfast.database_url import parse_database_url
from holdfast.processes import watchdog
from holdfast.processes.heart import LOOP_BLOCKED_SECONDS
from holdfast.processes.supervisor import START_ME_AGAIN
from holdfast.processes.worker import Worker
from holdfast.processes.worker_end import WorkerEnd
from holdfast.thread_starts import Executor, start

HARD_END_SECONDS = 5.0
"""What nobody can stop, a thread or a task that swallows its cancellation, must not keep a process from ending."""


@dataclasses.dataclass(frozen=True)
class Wish:
    """The worker that somebody asked for."""

    queues: list[str] | dict[str, int] | None = None
    concurrency: int = 10
    exit_when_idle: float | None = None
    max_lifetime: float | None = None
    reap: bool = True
    schedule: bool = True
    grace: float | None = None


class WorkerProcess:
    def __init__(self, call: Call, wish: Wish, *, supervised: bool = False) -> None:
        self._call = call
        self._wish = wish
        self._supervised = supervised
        self._signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._signalled)
        if not self._supervised:  # else the supervisor passes Ctrl+C on as SIGTERM
            signal.signal(signal.SIGINT, self._signalled)
        hf = self._prepared_app()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            end = runner.run(self._work(hf))
            code = STORAGE if end.reason == "database_away" else OK
            self._leave_for_certain(end, code)
        return code

    def _prepared_app(self) -> Holdfast:
        hf = app_with_tasks(self._call)
        log_to_stderr(hf.settings.log_format)
        if not hf.tasks:
            raise AppUnusable(f"{find_app_name(self._call)} has no tasks; is the module with the tasks imported by it?")
        if self._wish.grace is not None:
            hf.settings = dataclasses.replace(hf.settings, grace=self._wish.grace)
        return hf

    async def _work(self, hf: Holdfast) -> WorkerEnd:
        wish = self._wish
        idle = hf.settings.exit_when_idle if wish.exit_when_idle is None else wish.exit_when_idle
        self._worker = hf.worker(
            queues=wish.queues,
            concurrency=wish.concurrency,
            exit_when_idle=idle,
            max_lifetime=wish.max_lifetime,
            reap=wish.reap,
            schedule=wish.schedule,
            on_stuck=self._stuck,
            watchdog=hf.settings.watchdog,
        )
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._callback_failed)
        self._loop.set_default_executor(Executor(thread_name_prefix="asyncio"))
        self._print_end_of_thread, threading.excepthook = threading.excepthook, self._thread_failed
        self._introduce(hf)
        try:
            return await self._worker.run()
        finally:
            await hf.aclose()

    def _introduce(self, hf: Holdfast) -> None:
        row = self._worker.row()
        tasks = sorted({task.name for task in hf.tasks.values()})
        database = parse_database_url(hf.settings.database_url).safe
        say(
            f"Worker {row.id}: database {database}, queues {', '.join(row.queues)}, "
            f"{len(tasks)} tasks ({', '.join(tasks)}), concurrency {row.concurrency}"
        )

    # -- signals

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """The first stops the worker, the second ends the grace period, the third ends everything.

        Not loop.add_signal_handler: that would not even note a signal while a task blocks the loop.
        """
        self._signals += 1
        if self._loop is None:  # nothing was claimed yet; an exception would be one of the module that is being imported
            _end_now(OK)
        if self._signals > 2:
            _end_now(INTERRUPTED)
        self._loop.call_soon_threadsafe(self._worker.stop)
        settings = self._worker.settings
        _later(settings.grace + settings.lease + HARD_END_SECONDS, lambda: _end_now(OK))

    # -- the end

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Whoever was to be woken by it may wait without end, and that with a lease."""
        if "handle" in context and isinstance(context.get("exception"), MemoryError):
            self._worker.stop("stuck")
        loop.default_exception_handler(context)

    def _thread_failed(self, told: threading.ExceptHookArgs) -> None:
        """One of Holdfast's own, and no task's: its heart, or the thread that writes to SQLite's file."""
        try:
            self._print_end_of_thread(told)
        finally:
            if told.thread is not None and told.thread.name.startswith("holdfast "):
                say(f"This worker goes: its thread {told.thread.name!r} failed, and a new process takes its place.")
                self._worker.found_stuck()

    def _leave_for_certain(self, end: WorkerEnd, code: int) -> None:
        if self._worker.watchdog:  # an end may freeze as well
            watchdog.end_in(2 * HARD_END_SECONDS)
        if end.reason == "stuck":
            self._replace()
        if end.threads_left:
            _end_now(code)  # the interpreter would wait for them without end
        _later(HARD_END_SECONDS, lambda: _end_now(code))

    def _stuck(self) -> None:
        """From the heart's thread. With a blocked loop the heart has given the jobs back and nothing else can be done here;
        a loop that answers winds down by itself, unless the task that hangs also refuses to be cancelled."""
        assert self._loop is not None
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        if answered.wait(LOOP_BLOCKED_SECONDS):
            _later(self._worker.settings.grace + HARD_END_SECONDS, self._replace)
        else:
            self._replace()

    def _replace(self) -> NoReturn:
        """Make room for a new process in this one's place, unless this one was told to stop anyway."""
        if self._signals:
            _end_now(OK)
        if self._supervised:
            _end_now(START_ME_AGAIN)
        _flush()
        with contextlib.suppress(OSError, MemoryError):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        os._exit(START_ME_AGAIN)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _later(seconds: float, act: Callable[[], object]) -> None:
    """In case that nothing else ends this process. Without memory for a thread there is no such net, and all else goes on: an
    exception here would be one of whatever a signal came in between."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    with contextlib.suppress(RuntimeError, MemoryError):
        start(timer)


def _end_now(code: int) -> NoReturn:
    _flush()
    os._exit(code)


def _flush() -> None:
    with contextlib.suppress(RuntimeError):  # a signal came in the middle of a write
        sys.stdout.flush()
        sys.stderr.flush()
