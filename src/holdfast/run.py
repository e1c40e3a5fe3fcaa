"""Step 3 of 6: one attempt, as a flat list of named steps."""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator
from enum import StrEnum
from typing import Any, Protocol

from holdfast import codec, sealing, tracing
from holdfast.context import CurrentRun, Platform, current_run
from holdfast.errors import Abort, HoldfastError, InvalidArguments, JobCancelled, RetryLater
from holdfast.finish import (
    ArgumentsUnfit,
    DeadlineExceeded,
    LifetimeOver,
    ResultUnusable,
    departure_of,
    lifetime_over,
    release_of,
)
from holdfast.forking import ProcessLock
from holdfast.limits import gates
from holdfast.limits.breaker import Entry, Verdict
from holdfast.redact import redact_json
from holdfast.runlog import capture
from holdfast.runlog.desk import RunBuffer
from holdfast.runlog.logs import RunLogs
from holdfast.runlog.output import LineSplitter
from holdfast.runlog.text import Said, traceback_text
from holdfast.settings import Settings
from holdfast.store.protocol import Claimed, Completion, Departure, Leaving
from holdfast.task import Task

_opening = ProcessLock()
COUNTED_AS = {
    Leaving.RETRY: "retried",
    Leaving.FAIL: "failed",
    Leaving.SNOOZE: "snoozed",
    Leaving.RELEASE: "released",
    Leaving.CANCEL: "cancelled",
}
_HERE = os.path.dirname(__file__)
_AROUND_THE_TASK = (__file__, os.path.join(_HERE, "processes", ""), os.path.dirname(asyncio.__file__))


class Interrupt(StrEnum):
    """Why a run is being stopped from outside."""

    DEADLINE = "deadline"
    CANCEL = "cancel"
    RELEASE = "release"
    LIFETIME = "lifetime"
    LOST = "lost"


class Logging(Protocol):
    """Whoever can put an error into a run's log: an attempt, here or in an isolated process."""

    @property
    def claimed(self) -> Claimed: ...

    @property
    def note(self) -> Callable[..., None]: ...


class Host(Protocol):
    """What an attempt needs of the worker around it."""

    platform: Platform
    settings: Settings
    run_logs: RunLogs

    async def call_in_thread(self, fn: Callable[[], Any]) -> Any: ...
    async def call_isolated(self, attempt: Attempt) -> Any: ...


class Attempt:
    """One run in this worker: the way between the task's code (as its Link) and the worker's parts."""

    __slots__ = (
        "buffer", "cancelled", "cancelled_by", "claimed", "completed_in_tx", "ended", "entry", "first_line", "host",
        "interrupted", "outcome", "prints", "run", "seconds", "slot", "span", "started", "task", "tell_child", "timer",
        "verdict",
    )  # fmt: skip

    def __init__(self, host: Host, task: Task[..., Any], claimed: Claimed) -> None:
        self.host = host
        self.task = task
        self.claimed = claimed
        self.run = CurrentRun(claimed, self, host.platform)
        self.buffer: RunBuffer | None = None
        self.prints: dict[str, LineSplitter] = {}
        self.cancelled = False
        self.cancelled_by: str | None = None
        self.completed_in_tx = False
        self.interrupted: Interrupt | None = None
        self.ended = False
        self.slot: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.tell_child: Callable[[dict[str, Any]], None] | None = None
        self.span: Any = None
        self.entry: Entry | None = None
        self.verdict: tuple[Verdict, str | None]
        self.outcome = "completed"
        self.seconds = 0.0
        self.first_line: float | None = None
        self.started = time.monotonic()

    # -- the task speaks

    def log(
        self,
        level: str,
        message: str,
        step: str | None = None,
        duration_ms: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        (self.buffer or self._open_log()).add(level, message, step, duration_ms, metadata)

    def note(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        """A line of Holdfast's own, kept whatever the task's own lines came to."""
        (self.buffer or self._open_log()).note(level, message, metadata)

    def relay(self, line: Said, *, ours: bool = False) -> None:
        """A line from the run's own process."""
        (self.buffer or self._open_log()).put(line, ours=ours)

    def progress(self, fraction: float | None, stage: str | None) -> None:
        (self.buffer or self._open_log()).set_progress(fraction, stage)

    def printed(self, stream: str, text: bytes | str) -> bool:
        if "print" not in self.task.spec.capture or self.host.run_logs.inherited:
            return False
        lines = self.prints.get(stream)
        if lines is None:
            lines = self.prints.setdefault(
                stream, LineSplitter(lambda line: self.log("info", line, None, None, {"stream": stream}))
            )
        lines.feed(text)
        return True

    @property
    def capture_level(self) -> int:
        return capture.level_of(self.task.spec.capture)

    def hold_log(self) -> None:
        (self.buffer or self._open_log(speaks=False)).held = True

    async def log_has_room(self) -> None:
        if self.buffer is not None:
            await self.host.run_logs.room(self.buffer)

    def _open_log(self, *, speaks: bool = True) -> RunBuffer:
        opened, now = self.host.run_logs.open(self.claimed.id, self.claimed.run_id), time.monotonic()
        # The first lines may come from several threads, and from a finalizer inside this very lock: nothing is called between
        # the check and the assignment.
        with _opening:
            if self.buffer is None:
                self.buffer = opened
                self.first_line = now if speaks else None
        return self.buffer

    def end_prints(self) -> None:
        """What was begun without a line end, before anything else is said."""
        for lines in self.prints.values():
            lines.end()

    async def close_log(self) -> None:
        if self.buffer is not None:
            await self.host.run_logs.close(self.buffer)

    # -- the worker speaks

    def request_cancel(self, by: str | None) -> None:
        """Somebody wants this job cancelled: the task is told, and stopped at once if it opted in to that."""
        if self.cancelled:
            return
        self.cancelled, self.cancelled_by = True, by
        if self.tell_child is not None:
            self.tell_child({"cancel": by})
        if self.task.spec.cancel == "immediate" and not self.in_thread:
            self.interrupt(Interrupt.CANCEL)

    def interrupt(self, why: Interrupt) -> None:
        """Stop the run where it is. A thread cannot be stopped: its slot then no longer waits for it."""
        if self.ended or self.interrupted is not None:
            return
        self.interrupted = why
        if why is Interrupt.LOST:
            self.cancelled = True
        if self.slot is not None:
            self.slot.cancel()

    @property
    def in_thread(self) -> bool:
        return not (self.task.is_async or self.task.isolated)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def past_deadline(self) -> float:
        """Seconds since this run should have ended; negative while it may go on."""
        return self.elapsed - (self.claimed.timeout_seconds or float("inf"))


async def run_attempt(attempt: Attempt) -> Completion | Departure | None:
    """The outcome to be written, or None when the lease is gone and nothing may be written any more."""
    attempt.span = tracing.start_run(attempt.claimed)
    try:
        arguments = load_arguments(attempt.task, attempt.claimed, attempt.host.settings)
        if attempt.task.guarded:
            await gates.ask(attempt)
        start_deadline(attempt)
        value = await call(attempt, arguments)
        outcome: Completion | Departure | None = completion_of(attempt, value)
        if attempt.entry is not None:
            gates.judge(attempt, attempt.entry, None)
    except BaseException as error:
        outcome = outcome_of_error(attempt, error)
        if attempt.entry is not None:
            gates.judge(attempt, attempt.entry, error)
    attempt.ended = True
    if attempt.timer is not None:
        attempt.timer.cancel()
    while attempt.slot is not None and attempt.slot.cancelling():
        attempt.slot.uncancel()
    if attempt.entry is not None:
        await attempt.host.platform.breakers.leave(attempt.entry, *attempt.verdict)
    if attempt.host.platform.spending.pending:
        await attempt.host.platform.spending.settle(attempt.claimed.run_id)
    await attempt.close_log()
    note_end(attempt, outcome)
    return outcome


def note_end(attempt: Attempt, outcome: Completion | Departure | None) -> None:
    """For those who count and trace."""
    attempt.seconds = attempt.elapsed
    departure = outcome if isinstance(outcome, Departure) else None
    if departure is not None:
        attempt.outcome = "cancelled" if attempt.cancelled else COUNTED_AS[departure.how]
    if attempt.span is None:
        return
    if departure is not None:
        tracing.end_run(attempt.span, attempt.outcome, departure.error_code, departure.error_message)
    elif outcome is None:
        tracing.end_run(attempt.span, "lost", "lease_lost", "the job was taken from this worker")
    else:
        tracing.end_run(attempt.span, attempt.outcome, None, None)


def load_arguments(task: Task[..., Any], claimed: Claimed, settings: Settings) -> dict[str, Any]:
    args: str | bytes = claimed.args
    if settings.encryption_keys:
        args = sealing.open_json(settings.encryption_keys, args, f"{claimed.id}:args")
    try:
        return task.load_arguments(args)
    except InvalidArguments as error:
        if sealing.is_sealed(args):
            sealing.open_json((), args, "")  # says which setting is missing
        raise ArgumentsUnfit(str(error)) from error


def start_deadline(attempt: Attempt) -> None:
    """A deadline of hours is watched by the heart; a timer for every short job would cost more than it is worth."""
    if attempt.task.spec.timeout is not None or attempt.task.spec.expected is not None:
        seconds = attempt.claimed.timeout_seconds or attempt.host.settings.run_limit
        attempt.timer = asyncio.get_running_loop().call_later(seconds, attempt.interrupt, Interrupt.DEADLINE)


async def call(attempt: Attempt, arguments: dict[str, Any]) -> Any:
    task = attempt.task
    if task.isolated:
        return await attempt.host.call_isolated(attempt)
    context = contextvars.copy_context()
    context.run(current_run.set, attempt.run)
    if attempt.span is not None:
        context.run(tracing.enter, attempt.span)
    if "print" in task.spec.capture:
        with capture.prints_watched(attempt.end_prints):
            return await call_here(attempt, context, arguments)
    return await call_here(attempt, context, arguments)


async def call_here(attempt: Attempt, context: contextvars.Context, arguments: dict[str, Any]) -> Any:
    task = attempt.task
    if task.is_async:
        return await in_context(context, task.fn(**arguments))
    return await attempt.host.call_in_thread(lambda: context.run(task.fn, **arguments))


@types.coroutine
def in_context(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await a coroutine in a context of its own without a task of its own: slots run many jobs, and neither the current
    run nor what a task binds (structlog, tracing) may leak from one job into the next."""
    step: Callable[..., Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            awaited = context.run(step, argument)
        except StopIteration as finished:
            return finished.value
        try:
            step, argument = coroutine.send, (yield awaited)
        except BaseException as error:
            step, argument = coroutine.throw, error


def completion_of(attempt: Attempt, value: Any) -> Completion:
    return completion_of_value(attempt.claimed, value, attempt.host.settings)


def completion_of_value(claimed: Claimed, value: Any, settings: Settings) -> Completion:
    data = result_json(value, settings)
    if data is not None and settings.encryption_keys:
        data = sealing.seal_json(settings.encryption_keys, data, f"{claimed.id}:result")
    return Completion(claimed.id, claimed.run_id, data, claimed.order_key is not None)


def result_json(value: Any, settings: Settings) -> str | None:
    if value is None:
        return None
    try:
        data = codec.encode(value)
    except codec.NotJson as error:
        raise ResultUnusable(f"the result {error}; return plain data", "result_not_json") from error
    most = settings.result_bytes_max
    if len(data) > most:
        raise ResultUnusable(
            f"the result takes {len(data)} bytes and {most} are allowed; store it and return its key", "result_too_large"
        )
    return redact_json(data).decode()


def outcome_of_error(attempt: Attempt, error: BaseException) -> Completion | Departure | None:
    claimed = attempt.claimed
    why = attempt.interrupted if isinstance(error, asyncio.CancelledError) else None
    if isinstance(error, HandedOver):
        departure = error.departure
    elif why is Interrupt.LOST:
        return None
    elif why is Interrupt.RELEASE:
        return release_of(claimed)
    elif why is Interrupt.LIFETIME:
        error, departure = lifetime_over(claimed, attempt.elapsed)
        log_error(attempt, error, departure)
    elif why is Interrupt.CANCEL:
        departure = departure_of(JobCancelled(), claimed, attempt.task.spec, attempt.host.settings, cancelled=True)
    else:
        if why is Interrupt.DEADLINE:
            error = DeadlineExceeded(f"took longer than the {claimed.timeout_seconds:g} s it may take")
        departure = departure_of(error, claimed, attempt.task.spec, attempt.host.settings, cancelled=attempt.cancelled)
        log_error(attempt, error, departure)
    if departure.how is Leaving.CANCEL:
        attempt.note("warning", f"Cancelled by {attempt.cancelled_by or 'somebody'}")
    return departure


def log_error(attempt: Logging, error: BaseException, departure: Departure) -> None:
    if departure.error_code is None or departure.how is Leaving.SNOOZE:
        return  # snoozed, waiting or cancelled: no error at all
    details: dict[str, Any] = {"error_code": departure.error_code}
    if not isinstance(error, (Abort, RetryLater, HoldfastError, DeadlineExceeded, LifetimeOver, ResultUnusable)):
        details["traceback"] = traceback_of(error)
    claimed = attempt.claimed
    failed = f"Attempt {claimed.attempt} of {claimed.max_attempts} failed: {departure.error_message}"
    if departure.how is Leaving.RETRY:
        attempt.note("warning", f"{failed} - retrying in {departure.delay:.0f} s", details)
    else:
        attempt.note("error", failed, details)


def traceback_of(error: BaseException) -> str:
    """The user's part of the traceback: our own frames tell the reader nothing."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_around_the_task(frames.tb_frame):
        frames = frames.tb_next
    return traceback_text(error, frames)


def _is_around_the_task(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_AROUND_THE_TASK)


class HandedOver(Exception):
    """An isolated process has decided the departure itself, with the same code, where the exception still existed."""

    def __init__(self, departure: Departure, blamed: str | None = None) -> None:
        super().__init__(departure.error_message)
        self.departure = departure
        self.blamed = blamed
        """What it had against the service that its task needs."""
