"""The heart of a worker: beats for all its runs in one statement, from a thread and a connection of its own.

A task that blocks the event loop therefore keeps its lease; only C code that holds the interpreter lock can stop it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from holdfast.errors import StorageError, StorageUnavailable
from holdfast.finish import DeadlineExceeded, departure_of, release_of
from holdfast.job import State
from holdfast.processes.reaper import Reaper
from holdfast.processes.watchdog import disarm, end_in, watched
from holdfast.run import Attempt, Interrupt
from holdfast.settings import Settings
from holdfast.store.protocol import Beat, Claimed, Departure, Held, Store, WorkerRow
from holdfast.thread_starts import ThreadStarts, start

log = logging.getLogger("holdfast")

T = TypeVar("T")

TRIES = 3
PATIENCE = 0.75
"""How much of the interval between two beats one of them may take: at most a quarter of a lease, of which a third is over."""
LOOP_BLOCKED_SECONDS = 5.0
LOCKED_ROW_SECONDS = 0.5
RELEASE_TRIES = 5
STUCK_SECONDS = 5.0
"""How long after its deadline a run may take to let go before the heart takes its job away."""


class Body(Protocol):
    """The worker, as its heart sees it."""

    store: Store
    settings: Settings
    loop: asyncio.AbstractEventLoop
    running: dict[str, Attempt]
    reaper: Reaper | None
    watchdog: float

    def row(self) -> WorkerRow: ...
    def beat_answered(self, asked: list[Beat], held: list[Held]) -> None: ...
    def found_stuck(self) -> None: ...
    def take_back_waiting(self) -> list[Claimed]: ...


class Heart:
    def __init__(self, body: Body) -> None:
        self._body = body
        self._stopping = threading.Event()
        self._soon: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._main, name="holdfast heart", daemon=True)
        self._loop_answered = time.monotonic()
        self._warned_blocked = False
        self._thread_starts = ThreadStarts()

    def start(self) -> None:
        if self._body.watchdog:  # before the first run, which may freeze the process while this thread is still beginning
            end_in(self._body.watchdog)
        start(self._thread)

    def beat_soon(self) -> None:
        """Something may have been cancelled: ask now instead of at the next beat."""
        self._soon()

    def stop(self) -> None:
        self._stopping.set()
        self._soon()

    async def stopped(self) -> None:
        if self._thread.ident is not None:  # or it could not be started
            await asyncio.to_thread(self._thread.join, 5.0)
        if self._body.watchdog:  # also where that thread is held up: the program around this worker goes on
            disarm()

    def _main(self) -> None:
        asyncio.run(self._beat_watched())

    async def _beat_watched(self) -> None:
        """Not the worker's own loop: a task that blocks it is no freeze."""
        async with watched(self._body.watchdog):
            await self._beat_until_stopped()

    async def _beat_until_stopped(self) -> None:
        loop, wanted = asyncio.get_running_loop(), asyncio.Event()

        def soon() -> None:
            loop.call_soon_threadsafe(wanted.set)

        self._soon = soon
        last_beat = time.monotonic()
        while not self._stopping.is_set():
            interval = self._interval()
            try:
                async with asyncio.timeout(max(0.0, min(1.0, last_beat + interval - time.monotonic()))):
                    await wanted.wait()
            except TimeoutError:
                pass
            self._look_at_the_loop()
            try:
                await self._take_away_what_is_stuck()
                await self._leave_if_a_thread_never_begins()
                if wanted.is_set() or time.monotonic() - last_beat >= interval:
                    wanted.clear()
                    last_beat = time.monotonic() if await self._beat() else self._soon_after_a_failure(interval)
            except Exception:  # without a heart every job of this worker would be lost
                log.exception("A heartbeat failed, the next one comes by itself")
                last_beat = self._soon_after_a_failure(interval)
        self._soon = lambda: None
        await self._body.store.leave_loop()

    def _soon_after_a_failure(self, interval: float) -> float:
        """When the last beat would have been for the next one to be due in a second. Also for rows that others had locked."""
        return time.monotonic() - interval + min(1.0, interval)

    def _interval(self) -> float:
        shortest = min((a.claimed.lease_seconds for a in list(self._body.running.values())), default=float("inf"))
        return min(self._body.settings.heartbeat, shortest / 3)

    async def _beat(self) -> bool:
        body = self._body
        running = list(body.running.items())
        beats = [Beat(a.claimed.id, run_id, a.claimed.lease_seconds) for run_id, a in running]
        # A run that completes in the task's own transaction has locked its row until that ends, and needs no other beat.
        locked_by_itself = {run_id for run_id, attempt in running if attempt.completed_in_tx}
        held: list[Held] = []
        try:
            if beats:
                held = await self._answered(lambda: body.store.lease_extend_if_held(beats))
                body.loop.call_soon_threadsafe(body.beat_answered, beats, held)
            seconds = await self._answered(lambda: body.store.worker_seen(body.row()))
            if seconds is not None and body.reaper is not None:
                body.loop.call_soon_threadsafe(body.reaper.look_in, seconds)
            running_on = {run_id for run_id, attempt in list(body.running.items()) if not attempt.ended}
            return all(lease.extended or lease.run_id in locked_by_itself or lease.run_id not in running_on for lease in held)
        except StorageError as error:
            log.warning("A heartbeat did not reach the database: %s", error)
            return False
        except RuntimeError:
            return True  # the worker's loop is closed: we are about to be stopped

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Nobody is told when a connection has gone silent: who gets no answer asks again on another one, while there is still
        something left of the lease. Each time with more patience, for the database may only be slow."""
        patience = PATIENCE * self._interval()
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(patience):
                    return await ask()
            except TimeoutError:
                patience *= 2
        raise StorageUnavailable(f"The database gave no answer to {TRIES} tries; check the network between it and this worker.")

    def _look_at_the_loop(self) -> None:
        """Says so when a task blocks the event loop: everything else in this worker waits for it."""
        blocked = time.monotonic() - self._loop_answered
        if blocked > LOOP_BLOCKED_SECONDS and not self._warned_blocked:
            self._warned_blocked = True
            names = sorted({a.task.name for a in list(self._body.running.values()) if a.task.is_async})
            log.warning(
                "The event loop has been blocked for %.0f s by one of: %s. Use `def` or isolate=True.",
                blocked,
                ", ".join(names),
            )
        try:
            self._body.loop.call_soon_threadsafe(self._loop_answers)
        except RuntimeError:
            self._stopping.set()

    def _loop_answers(self) -> None:
        self._loop_answered = time.monotonic()
        self._warned_blocked = False

    async def _take_away_what_is_stuck(self) -> None:
        body = self._body
        for attempt in list(body.running.values()):
            late = attempt.past_deadline
            if late > 0 and not attempt.ended and attempt.interrupted is None:
                body.loop.call_soon_threadsafe(attempt.interrupt, Interrupt.DEADLINE)
            if late > STUCK_SECONDS and not attempt.ended:
                await self._fence_off(attempt)

    async def _fence_off(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        error = DeadlineExceeded(f"took longer than the {claimed.timeout_seconds:g} s it may take and could not be stopped")
        try:
            departure = departure_of(error, claimed, attempt.task.spec, self._body.settings)
            left = await self._answered(lambda: self._body.store.job_leave_if_leased([departure]))
            states = {} if left else await self._body.store.run_states([(claimed.id, claimed.run_id)])
            if states.get(claimed.run_id) is State.RUNNING:
                return  # another session has locked the row: asked again in a second
        except StorageError:
            return  # asked again in a second
        attempt.ended = True
        self._body.running.pop(claimed.run_id, None)
        log.error(
            "Job %s (%s) hangs past its deadline; its run is fenced off and this worker recycles itself.",
            claimed.id,
            claimed.task,
        )
        await self._release_all_if_blocked()
        self._body.found_stuck()

    async def _leave_if_a_thread_never_begins(self) -> None:
        """Whatever waits for such a thread waits forever, and its leases must not be kept up that long."""
        name = self._thread_starts.stuck(LOOP_BLOCKED_SECONDS)
        if name is not None:
            log.error(
                "A thread (%s) was started in this worker and never began, most likely for lack of memory; the worker gives "
                "its jobs back and recycles itself. Raise its limit (ulimit -v, RLIMIT_AS), or lower --concurrency.",
                name,
            )
            await self._release_all_if_blocked()
            self._body.found_stuck()

    async def _left(self, departures: list[Departure]) -> bool:
        """False where a run still holds its job, because another session has locked the row."""
        store = self._body.store
        left = await self._answered(lambda: store.job_leave_if_leased(departures))
        refused = [(one.id, one.run_id) for one in departures if one.run_id not in left]
        states = await self._answered(lambda: store.run_states(refused)) if refused else {}
        return State.RUNNING not in states.values()

    async def _release_all_if_blocked(self) -> None:
        """With the loop blocked nobody else can give the other jobs back."""
        if time.monotonic() - self._loop_answered < LOOP_BLOCKED_SECONDS:
            return
        others = list(self._body.running.values())
        jobs = [attempt.claimed for attempt in others] + self._body.take_back_waiting()
        departures = [release_of(job) for job in jobs]
        try:
            for _ in range(RELEASE_TRIES):
                if not departures or await self._left(departures):
                    break
                await asyncio.sleep(LOCKED_ROW_SECONDS)
        except StorageError:
            log.warning("Could not release %d jobs; their leases will expire.", len(departures))
        for attempt in others:
            self._body.loop.call_soon_threadsafe(attempt.interrupt, Interrupt.LOST)
