"""Step 4 of 6: outcome. What a run's end means for its job (pure), and the batched, fenced writing of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import reprlib
from collections.abc import Callable, Sequence, Set

from holdfast import codec
from holdfast.errors import (
    Abort,
    BreakerOpen,
    HoldfastError,
    InvalidOption,
    JobCancelled,
    JobNotFound,
    RateLimited,
    ResultTooLarge,
    RetryLater,
    Snooze,
    StorageError,
    StorageUnavailable,
)
from holdfast.job import State
from holdfast.options import TaskSpec
from holdfast.redact import redact
from holdfast.runlog.text import shown, storable
from holdfast.settings import Settings
from holdfast.store.protocol import Beat, Claimed, Completion, Departure, Leaving, Store

log = logging.getLogger("holdfast")

MESSAGE_CHARS_MAX = 2000
CODE_CHARS_MAX = 100
RATE_LIMITED = "rate limited - try later"
RATE_LIMIT = "rate_limit"
"""What a job waits for; `rate_limited` is how one ends that does not wait."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RETRY_SECONDS_MAX = 5.0
_ANSWER_SECONDS = 2.0
_LOCKED_SECONDS, _LOCKED_SECONDS_MAX = 0.01, 1.0
"""The pause before an outcome is sent again because another session has locked the row: often our heartbeat, for a moment."""
_NOT_NOW = (StorageUnavailable, MemoryError)
"""Nothing is wrong with the outcome itself: it is to be written later."""
_rng = random.Random()
os.register_at_fork(after_in_child=_rng.seed)  # or the workers of one supervisor would draw the same delays


class DeadlineExceeded(Exception):
    """The run took longer than its task allows."""


class LifetimeOver(Exception):
    """The worker reached the end of its life before the run ended."""


class ArgumentsUnfit(Exception):
    """The job's stored arguments do not fit the task's signature, which has changed since."""


class Waits(Exception):
    """Something outside the job does not let it run yet. This costs no attempt; the job says meanwhile what it waits for."""

    def __init__(self, message: str, code: str, delay: float) -> None:
        super().__init__(message)
        self.code = code
        self.delay = delay


class Refused(Exception):
    """Something outside the job does not let it run at all. It fails, and can be retried later with all its attempts."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ResultUnusable(Exception):
    """The task did its work, but what it returned cannot be stored."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ProcessDied(Exception):
    """The process of an isolated task ended without an answer."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def departure_of(
    error: BaseException, claimed: Claimed, task: TaskSpec, settings: Settings, *, cancelled: bool = False
) -> Departure:
    """The one place that decides what an exception means. It always answers: a run without an end would hang for ever.

    `cancelled`: somebody asked this very run to stop. Without that, a JobCancelled comes from another job's result.
    """
    if cancelled and isinstance(error, JobCancelled):
        return _leave(claimed, Leaving.CANCEL)
    try:
        departure = _meaning_of(error, claimed, task, settings)
    except BaseException:  # a backoff function or a class of the user's own that raises while it is asked
        departure = _again(claimed, "task_error", error, settings.backoff_base)
    if cancelled:
        departure.how = Leaving.CANCEL
    return departure


def _meaning_of(error: BaseException, claimed: Claimed, task: TaskSpec, settings: Settings) -> Departure:
    if isinstance(error, (Snooze, RetryLater)):
        delay = _wait_of(error)
        if delay is None:
            wanted = f"takes a number of seconds up to {codec.SECONDS_MAX:.0f}, not {reprlib.repr(error.delay)}"
            error = InvalidOption(f"{type(error).__name__} {wanted}")
        elif isinstance(error, Snooze):
            return _leave(claimed, Leaving.SNOOZE, delay=delay, keep_attempt=False)
        else:
            return _again(claimed, error.code, error, delay)
    if isinstance(error, RateLimited):
        if task.on_rate_limited == "wait":
            return _leave(claimed, Leaving.SNOOZE, RATE_LIMIT, error, delay=error.retry_after, keep_attempt=False)
        return _leave(claimed, Leaving.FAIL, error.code, Abort(RATE_LIMITED), keep_attempt=False)
    if isinstance(error, Waits):
        return _leave(claimed, Leaving.SNOOZE, error.code, error, delay=error.delay, keep_attempt=False)
    if isinstance(error, BreakerOpen):
        return _leave(claimed, Leaving.SNOOZE, error.code, error, delay=error.retry_after, keep_attempt=False)
    if isinstance(error, Refused):
        return _leave(claimed, Leaving.FAIL, error.code, error, keep_attempt=False)
    if isinstance(error, ArgumentsUnfit):
        return _leave(claimed, Leaving.FAIL, "args_invalid", error, keep_attempt=False)
    if isinstance(error, (Abort, ResultUnusable, ResultTooLarge)):
        return _leave(claimed, Leaving.FAIL, error.code, error)
    if isinstance(error, task.permanent):
        return _leave(claimed, Leaving.FAIL, _code_of(error), error)
    delay = retry_delay(task, claimed.attempt, settings.backoff_base, settings.backoff_max, _rng)
    return _again(claimed, _code_of(error), error, delay)


def retry_delay(spec: TaskSpec, attempt: int, base: float, most: float, rng: random.Random) -> float:
    """Seconds to wait after this failed attempt (1 is the first)."""
    if isinstance(spec.backoff, tuple):
        return spec.backoff[min(attempt, len(spec.backoff)) - 1]
    if spec.backoff is not None:
        # A backoff function with a bug must not keep a job from being retried.
        with contextlib.suppress(Exception):
            return float(codec.seconds(0.0)(spec.backoff(attempt)))
    return rng.random() * min(most, base * 2.0 ** min(attempt - 1, 64))


def _wait_of(error: Snooze | RetryLater) -> float | None:
    """None where it is no number of seconds that a database could add to a time."""
    delay = error.delay
    is_number = isinstance(delay, (int, float)) and delay <= codec.SECONDS_MAX
    return max(0.0, float(delay)) if is_number else None


def _again(claimed: Claimed, code: str, error: BaseException, delay: float) -> Departure:
    if claimed.attempt >= claimed.max_attempts:
        return _leave(claimed, Leaving.FAIL, code, error)
    return _leave(claimed, Leaving.RETRY, code, error, delay=delay)


def _leave(
    claimed: Claimed,
    how: Leaving,
    code: str | None = None,
    error: BaseException | None = None,
    *,
    delay: float = 0.0,
    keep_attempt: bool = True,
) -> Departure:
    message = None if error is None else one_line(error)
    return Departure(
        id=claimed.id,
        run_id=claimed.run_id,
        how=how,
        delay=delay,
        error_code=None if code is None else storable(redact(shown(code)[: 5 * CODE_CHARS_MAX]))[:CODE_CHARS_MAX],
        error_message=message,
        keep_attempt=keep_attempt,
    )


def release_of(job: Claimed | Beat) -> Departure:
    """Back to the queue at once, uncounted."""
    return Departure(id=job.id, run_id=job.run_id, how=Leaving.RELEASE, keep_attempt=False)


def lifetime_over(claimed: Claimed, seconds: float) -> tuple[LifetimeOver, Departure]:
    """Counted, and at once: the job is not to blame for waiting any longer."""
    error = LifetimeOver(
        f"had run for {seconds:.0f} s when its worker reached max_lifetime; raise that, or make the job shorter"
    )
    return error, _again(claimed, "worker_lifetime", error, 0.0)


def _code_of(error: BaseException) -> str:
    if isinstance(error, DeadlineExceeded):
        return "deadline_exceeded"
    if isinstance(error, (ProcessDied, HoldfastError)):
        return error.code
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, SystemExit):
        return "task_exited"
    if not isinstance(error, Exception):
        return "task_interrupted"
    return "task_error"


def one_line(error: BaseException) -> str:
    """The error as people read it: its type and the first line of its message, without secrets or control characters."""
    # Cut first, because a message may have a hundred megabytes; far behind what is kept, so that no half secret stays.
    text = shown(error)[: 5 * MESSAGE_CHARS_MAX]
    first = next((line for line in text.splitlines() if line.strip()), "")
    plain_errors = (
        Abort, RetryLater, DeadlineExceeded, ResultUnusable, ProcessDied, ArgumentsUnfit, Waits, Refused, BreakerOpen,
        RateLimited, LifetimeOver,
    )  # fmt: skip
    named = first if isinstance(error, plain_errors) else f"{type(error).__name__}: {first}" if first else type(error).__name__
    return storable(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", redact(named)))[:MESSAGE_CHARS_MAX]


Settled = Callable[[str, bool], None]
"""Called with a run id once its outcome is written, or was refused because the lease is gone (False)."""


class Finisher:
    """Writes outcomes in batches. While one batch is on its way the next one gathers, so a busy worker batches by itself
    and a quiet one waits for nobody. What cannot be written now is kept and tried again; it is never reported as written."""

    def __init__(self, store: Store, settled: Settled) -> None:
        self._store = store
        self._settled = settled
        self._completions: list[Completion] = []
        self._departures: list[Departure] = []
        self._work = asyncio.Event()
        self._written = asyncio.Event()
        self._in_flight = 0
        self._in_doubt: set[str] = set()
        """Runs whose outcome was sent and never answered: it may have been written all the same."""
        self._locked: dict[str, float] = {}
        """Runs whose row another session has locked: the pause before the next try. Their outcomes hold up no others."""
        self._sent_at = 0.0
        self._failing = False

    def complete(self, completion: Completion) -> None:
        self._completions.append(completion)
        self._work.set()

    def leave(self, departure: Departure) -> None:
        self._departures.append(departure)
        self._work.set()

    @property
    def pending(self) -> int:
        return len(self._completions) + len(self._departures) + self._in_flight + len(self._locked)

    @property
    def stuck(self) -> bool:
        """What was to be written could not be, or has had no answer for some time."""
        return self._failing or (self._in_flight > 0 and asyncio.get_running_loop().time() - self._sent_at > _ANSWER_SECONDS)

    async def drain(self) -> None:
        """Wait until everything handed in so far is settled."""
        while self.pending:
            self._written.clear()
            await self._written.wait()

    async def write_now(self) -> bool:
        """For when `run` has been cancelled. Rows that another session has locked are asked for again, for some seconds."""
        clock = asyncio.get_running_loop().time
        over_at, written = clock() + _ANSWER_SECONDS, await self._write_all()
        while written and self.pending and clock() < over_at:
            await asyncio.sleep(_LOCKED_SECONDS)
            written = await self._write_all()
        return written and not self.pending

    async def run(self) -> None:
        """Until cancelled."""
        pause = 0.0
        while True:
            await self._work.wait()
            self._work.clear()
            if await self._write_all():
                pause = 0.0
            else:
                pause = min(_RETRY_SECONDS_MAX, pause * 2 or 0.2)
                self._work.set()
                await asyncio.sleep(pause)
            self._written.set()

    async def _write_all(self) -> bool:
        completions, self._completions = self._completions, []
        departures, self._departures = self._departures, []
        self._in_flight = len(completions) + len(departures)
        self._sent_at = asyncio.get_running_loop().time()
        try:
            if completions:
                await self._write_completions(completions)
                completions = []
            if departures:
                await self._write_departures(departures)
                departures = []
            self._failing = False
            return True
        except _NOT_NOW as error:
            self._failing = True
            log.warning("Outcomes of %d runs wait for the database: %s", self._in_flight, str(error) or type(error).__name__)
            self._in_doubt |= {sent.run_id for sent in completions} | {sent.run_id for sent in departures}
            return False
        finally:
            self._in_flight = 0
            self._completions[:0] = completions
            self._departures[:0] = departures

    async def _write_completions(self, completions: list[Completion]) -> None:
        try:
            accepted = await self._store.job_complete_if_leased(completions)
        except _NOT_NOW:
            raise
        except Exception:
            if len(completions) == 1:
                self._refused_by_database(completions[0])
                return
            for completion in completions:  # one of them is bad; the others must not suffer for it
                await self._write_completions([completion])
            return
        await self._settle_all(completions, accepted)

    def _refused_by_database(self, completion: Completion) -> None:
        log.exception("The database refused the result of job %s", completion.id)
        self.leave(
            Departure(
                id=completion.id,
                run_id=completion.run_id,
                how=Leaving.FAIL,
                error_code="result_not_storable",
                error_message="The database refused the result.",
            )
        )

    async def _write_departures(self, departures: list[Departure]) -> None:
        try:
            states = await self._store.job_leave_if_leased(departures)
        except _NOT_NOW:
            raise
        except Exception:
            if len(departures) == 1:
                log.exception("The database refused the end of job %s; its lease will expire", departures[0].id)
                self._locked.pop(departures[0].run_id, None)
                self._settled(departures[0].run_id, False)
                return
            for departure in departures:
                await self._write_departures([departure])
            return
        await self._settle_all(departures, states.keys())

    async def _settle_all(self, outcomes: Sequence[Completion | Departure], accepted: Set[str]) -> None:
        refused = [(outcome.id, outcome.run_id) for outcome in outcomes if outcome.run_id not in accepted]
        try:
            states = await self._store.run_states(refused) if refused else {}
        except _NOT_NOW:
            raise
        except StorageError as error:
            log.warning("Outcomes of %d runs wait for the database: %s", len(refused), error)
            states = {run_id: State.RUNNING for _, run_id in refused}  # not known, so they are handed in again
        for outcome in outcomes:
            if states.get(outcome.run_id) is State.RUNNING:
                self._try_again_later(outcome)
            else:
                self._locked.pop(outcome.run_id, None)
                await self._settle(outcome, outcome.run_id in accepted)

    def _try_again_later(self, outcome: Completion | Departure) -> None:
        pause = self._locked.get(outcome.run_id, _LOCKED_SECONDS)
        self._locked[outcome.run_id] = min(2 * pause, _LOCKED_SECONDS_MAX)
        loop = asyncio.get_running_loop()
        if isinstance(outcome, Completion):
            loop.call_later(pause, self.complete, outcome)
        else:
            loop.call_later(pause, self.leave, outcome)

    async def _settle(self, outcome: Completion | Departure, accepted: bool) -> None:
        in_doubt = outcome.run_id in self._in_doubt
        if in_doubt and not accepted:
            accepted = await self._had_arrived(outcome)
        self._in_doubt.discard(outcome.run_id)
        self._settled(outcome.run_id, accepted)

    async def _had_arrived(self, outcome: Completion | Departure) -> bool:
        """Whether the run ended by what we sent the first time, and not because somebody took it from us."""
        try:
            ends = {run.run_id: run.outcome for run in await self._store.run_list(outcome.id)}
        except (StorageError, JobNotFound):
            return False  # only what is told of this run hangs on it, so nobody waits for a better answer
        end = ends.get(outcome.run_id)
        return end == "completed" if isinstance(outcome, Completion) else end not in (None, "completed", "lost", "running")
