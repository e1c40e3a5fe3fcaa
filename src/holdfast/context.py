"""What a task sees of its own run: `current()`, its log, its progress, and `step()`."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from holdfast import codec, sealing
from holdfast.errors import HoldfastError, InvalidOption, JobCancelled, LeaseLost, ResultTooLarge
from holdfast.limits.breaker import Breakers
from holdfast.limits.budget import Budgets
from holdfast.limits.rate import Rates
from holdfast.limits.spending import Spending, Spent
from holdfast.redact import REDACTED, redact, redact_json
from holdfast.runlog.output import LineSplitter
from holdfast.settings import Settings
from holdfast.store.protocol import Claimed, Completion, Store
from holdfast.thread_starts import start
from holdfast.tx import Caller, caller_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Coroutine

P = ParamSpec("P")
T = TypeVar("T")

OUTPUT_BYTES = 16_384
"""Of a program, read at once: few enough that even empty lines stay well within what a log holds."""


class Link(Protocol):
    """The run's way back to whoever runs it: the worker itself, or the pipe of an isolated process."""

    cancelled: bool
    cancelled_by: str | None
    completed_in_tx: bool

    @property
    def capture_level(self) -> int:
        """Records of `logging` from this level on go to the run's log."""

    def log(self, level: str, message: str, step: str | None, duration_ms: float | None, metadata: dict[str, Any]) -> None: ...
    def progress(self, fraction: float | None, stage: str | None) -> None: ...

    def printed(self, stream: str, text: str) -> bool:
        """Whether this run's log takes what the task prints."""

    def hold_log(self) -> None:
        """From here to the end of the run its lines only wait: the caller's transaction has locked the job's row."""

    async def log_has_room(self) -> None:
        """Wait a while if lines come faster than they are written."""


class Platform(Protocol):
    """What a run asks of the Holdfast it belongs to."""

    store: Store
    rate: Rates
    budgets: Budgets
    breakers: Breakers
    spending: Spending
    settings: Settings

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class RunLog:
    """`current().log`: a line goes to the run's own log, numbered, redacted, never in the way of the job."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    def info(self, message: str, *, step: str | None = None, duration_ms: float | None = None, **metadata: Any) -> None:
        self._link.log("info", message, step, duration_ms, metadata)

    def success(self, message: str, *, step: str | None = None, duration_ms: float | None = None, **metadata: Any) -> None:
        self._link.log("success", message, step, duration_ms, metadata)

    def warning(self, message: str, *, step: str | None = None, duration_ms: float | None = None, **metadata: Any) -> None:
        self._link.log("warning", message, step, duration_ms, metadata)

    def error(self, message: str, *, step: str | None = None, duration_ms: float | None = None, **metadata: Any) -> None:
        self._link.log("error", message, step, duration_ms, metadata)

    async def stream(self, process: asyncio.subprocess.Process, *, step: str | None = None) -> int:
        """Put what a program prints into the log, line by line, until it ends; its exit code."""

        async def follow(name: str, pipe: asyncio.StreamReader) -> None:
            lines = self._lines_of(name, step)
            while data := await pipe.read(OUTPUT_BYTES):
                lines.feed(data)
                await self._link.log_has_room()
                await asyncio.sleep(0)
            lines.end()

        pipes = {"stdout": process.stdout, "stderr": process.stderr}
        await asyncio.gather(*(follow(name, pipe) for name, pipe in pipes.items() if pipe is not None))
        return await process.wait()

    def stream_sync(self, process: subprocess.Popen[Any], *, step: str | None = None) -> int:
        """`stream()` for tasks that are plain functions."""

        def follow(name: str, pipe: Any) -> None:
            lines = self._lines_of(name, step)
            while data := os.read(pipe.fileno(), OUTPUT_BYTES):
                lines.feed(data)
            lines.end()

        pipes = [(name, pipe) for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)) if pipe is not None]
        beside = [threading.Thread(target=follow, args=one, daemon=True) for one in pipes[1:]]
        for thread in beside:
            start(thread)
        for one in pipes[:1]:
            follow(*one)
        for thread in beside:
            thread.join()
        return process.wait()

    def _lines_of(self, stream: str, step: str | None) -> LineSplitter:
        return LineSplitter(lambda line: self._link.log("info", line, step, None, {"stream": stream}))


class CurrentRun:
    """The run that is executing this code. Never kept beyond it."""

    __slots__ = ("_claimed", "_link", "_platform")

    def __init__(self, claimed: Claimed, link: Link, platform: Platform) -> None:
        self._claimed = claimed
        self._link = link
        self._platform = platform

    @property
    def job_id(self) -> str:
        return self._claimed.id

    @property
    def run_id(self) -> str:
        return self._claimed.run_id

    @property
    def run_no(self) -> int:
        return self._claimed.run_no

    @property
    def attempt(self) -> int:
        return self._claimed.attempt

    @property
    def task(self) -> str:
        return self._claimed.task

    @property
    def queue(self) -> str:
        return self._claimed.queue

    @property
    def tenant(self) -> str | None:
        return self._claimed.tenant

    @property
    def idempotency_token(self) -> str:
        """The same for every attempt of this job: give it to outside services, so that they do a thing once."""
        return f"holdfast-{self._claimed.id}"

    @property
    def log(self) -> RunLog:
        return RunLog(self._link)

    def progress(self, fraction: float | None, stage: str | None = None) -> None:
        """How far the run is, from 0 to 1, and what it is doing. Cheap: written at most a few times a second."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise InvalidOption(f"progress must lie between 0 and 1, not {fraction!r}")
        self._link.progress(fraction, stage)

    def spend(self, cents: float, kind: str) -> Spent:
        """This run has spent so much (fractions of a cent are fine). It is written at once, beside the run and whatever becomes
        of it; `await` it to go on only when it is written. In a plain function it is written when this returns."""
        return self._platform.spending.spend(self._claimed, cents, kind)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for this job to be cancelled, or the run has lost its lease."""
        return self._link.cancelled

    def check_cancelled(self) -> None:
        """Raise JobCancelled if this run is to stop. Call it where stopping leaves nothing half done."""
        if self._link.cancelled:
            raise JobCancelled(f"cancelled by {self._link.cancelled_by or 'somebody'}")

    async def complete(self, result: Any = None, *, tx: Any) -> None:
        """Complete the job inside your own transaction: it is completed if and only if that commits."""
        caller, statement = self._completion(result, tx)
        self._completed(await caller.run_async(statement))

    def complete_sync(self, result: Any = None, *, tx: Any) -> None:
        caller, statement = self._completion(result, tx)
        if caller.is_async:
            raise InvalidOption("complete_sync cannot use an async connection; await complete(...) instead.")
        self._completed(caller.run(statement))

    def _completion(self, result: Any, tx: Any) -> tuple[Caller, Any]:
        caller = caller_of(tx)
        if caller.kind != self._platform.store.name:
            raise InvalidOption(f"tx is a connection to {caller.kind}, but the jobs are stored in {self._platform.store.name}.")
        data = None if result is None else _stored_json_of(self, result, "complete: the result").decode()
        keys = self._platform.settings.encryption_keys
        if data is not None and keys:
            data = sealing.seal_json(keys, data, f"{self.job_id}:result")
        ordered = self._claimed.order_key is not None
        self._link.hold_log()
        return caller, self._platform.store.complete_statement(Completion(self.job_id, self.run_id, data, ordered))

    def _completed(self, rows: Any) -> None:
        if not rows:
            raise LeaseLost(f"job {self.job_id} is no longer held by this run; roll your transaction back")
        if rows[0][0] in SNAPSHOT_LEVELS:
            raise InvalidOption(
                f"Job {self.job_id} has an ordering key, and a {rows[0][0].upper()} transaction cannot see which job is next; "
                "begin the transaction with ISOLATION LEVEL READ COMMITTED."
            )
        self._link.completed_in_tx = True


SNAPSHOT_LEVELS = ("repeatable read", "serializable")

current_run: ContextVar[CurrentRun] = ContextVar("holdfast_current_run")


def current() -> CurrentRun:
    """The run that executes this code."""
    try:
        return current_run.get()
    except LookupError:
        raise HoldfastError("current() only works inside a task that a worker runs; there is no run here.") from None


@overload
async def step(name: str, fn: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
@overload
async def step(name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
async def step(name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Do one part of a task and remember its JSON result, so that a later attempt of this job skips it."""
    run = current()
    run.check_cancelled()
    name = redact(name)
    store, fingerprint = run._platform.store, _fingerprint(name, args, kwargs)
    known = await store.step_get(run.job_id, name, fingerprint)
    if known is not None:
        return _known(run, name, known.result)
    value = fn(*args, **kwargs)
    if inspect.isawaitable(value):
        value = await value
    return await _remember(run, name, fingerprint, value)


def step_sync(name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`step()` for tasks that are plain functions."""
    run = current()
    run.check_cancelled()
    name = redact(name)
    fingerprint = _fingerprint(name, args, kwargs)
    known = run._platform.call_sync(run._platform.store.step_get(run.job_id, name, fingerprint))
    value = (
        _known(run, name, known.result)
        if known
        else run._platform.call_sync(_remember(run, name, fingerprint, fn(*args, **kwargs)))
    )
    result: T = value
    return result


def _known(run: CurrentRun, name: str, result: str | bytes) -> Any:
    return codec.decode(sealing.open_json(run._platform.settings.encryption_keys, result, f"{run.job_id}:step {name}"))


async def _remember(run: CurrentRun, name: str, fingerprint: str, value: Any) -> Any:
    """The value comes back as its JSON form, as a later attempt would see it, so that both behave alike."""
    data = _stored_json_of(run, value, f"step {name}: the result", step=name)
    kept = sealing.seal_json(run._platform.settings.encryption_keys, data.decode(), f"{run.job_id}:step {name}")
    stored = await run._platform.store.step_save_if_leased(run.job_id, run.run_id, name, fingerprint, kept)
    if stored is None:
        raise LeaseLost(f"job {run.job_id} is no longer held by this run")
    return _known(run, name, stored.result)


def _stored_json_of(run: CurrentRun, value: Any, what: str, *, step: str | None = None) -> bytes:
    """A result as it is kept: within the limit and without secrets. A step goes on with what is kept, so it is told."""
    data = _json_of(value, what)
    most = run._platform.settings.result_bytes_max
    if len(data) > most:
        raise ResultTooLarge(f"{what} takes {len(data)} bytes and {most} are allowed; store it and return its key")
    clean = redact_json(data)
    if clean is not data and step is not None:
        run.log.warning(
            f"The result of step {step} held what looks like a secret, which is not kept: later code sees {REDACTED} in its "
            "place. Return a reference instead, such as an id or the name of a variable.",
            step=step,
        )
    return clean


def _fingerprint(name: str, args: Any, kwargs: Any) -> str:
    return hashlib.sha256(_json_of([args, kwargs], f"step {name}: the list of arguments")).hexdigest()[:32]


def _json_of(value: Any, what: str) -> bytes:
    try:
        return codec.encode(value)
    except codec.NotJson as error:
        raise InvalidOption(f"{what} {error}; it is stored, so it must be plain data") from error
