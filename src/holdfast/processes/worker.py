"""A worker: claimer, slots, finisher, heart and watcher, five small parts around one database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.claim import QueueOrder
from holdfast.context import Platform
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.finish import Finisher, release_of
from holdfast.ids import new_worker_id
from holdfast.process_identity import own_identity
from holdfast.processes.announcer import Announce, Announcer
from holdfast.processes.claimer import Claimer
from holdfast.processes.heart import Heart
from holdfast.processes.helpers import Helpers
from holdfast.processes.isolated import run_isolated
from holdfast.processes.lifetime import Lifetime
from holdfast.processes.on_machine import OnMachine
from holdfast.processes.reaper import Reaper
from holdfast.processes.scheduler import Scheduler
from holdfast.processes.slots import Slots
from holdfast.processes.threads import TaskThreads
from holdfast.processes.watcher import Watcher
from holdfast.processes.worker_end import WorkerEnd
from holdfast.run import Attempt, Interrupt, run_attempt
from holdfast.runlog.capture import watch_logging
from holdfast.runlog.logs import RunLogs
from holdfast.settings import Settings
from holdfast.store.protocol import Beat, Claimed, Completion, Held, Store, WorkerRow
from holdfast.tally import Tallies
from holdfast.task import Task
from holdfast.version import VERSION

log = logging.getLogger("holdfast")

SHORT_LEASE_SECONDS = 5.0
"""A lease that could end before the heart's next look."""
LET_GO_SECONDS = 5.0
"""How long a run that is told to stop may take before the worker leaves without it."""


class Worker:
    loop: asyncio.AbstractEventLoop
    run_logs: RunLogs

    def __init__(
        self,
        platform: Platform,
        settings: Settings,
        tasks: dict[str, Task[..., Any]],
        *,
        queues: Sequence[str] | Mapping[str, int],
        concurrency: int,
        exit_when_idle: float | None = None,
        reap: bool = True,
        on_stuck: Callable[[], None] | None = None,
        max_lifetime: float | None = None,
        watchdog: float = 0.0,
        scheduler: Scheduler | None = None,
        announce: Announce | None = None,
    ) -> None:
        self.platform = platform
        self.store: Store = platform.store
        self.settings = settings
        self.id = new_worker_id(socket.gethostname(), os.getpid())
        self._process = own_identity()
        self.running: dict[str, Attempt] = {}
        self._tasks, self._task_names = tasks, sorted(tasks)
        order = QueueOrder(queues)
        self._queues = order.names
        self._concurrency = concurrency
        self.reaper = Reaper(self.store, settings) if reap else None
        self._machine_id = os.environ.get("FLY_MACHINE_ID") or os.environ.get("HOLDFAST_MACHINE_ID")
        self._on_stuck = on_stuck
        self._lifetime = Lifetime(max_lifetime, settings.grace)
        self.watchdog = watchdog
        self._on_machine = OnMachine(self.store) if self._machine_id else None
        self._scheduler = scheduler
        self._announcer = Announcer(announce, self._announced) if announce else None
        self._stop_reason: str | None = None
        self._draining = self._in_a_hurry = self._has_failed = False
        self._done_jobs = 0
        self._tallies = Tallies()
        self._threads = TaskThreads(concurrency)
        self._run_ended = asyncio.Event()
        self._ended = asyncio.Event()
        self._claimer = Claimer(
            self,
            machine_id=self._machine_id,
            order=order,
            tasks=self._task_names,
            concurrency=concurrency,
            exit_when_idle=exit_when_idle,
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> WorkerEnd:
        """Until stopped or idle. Always leaves no job behind that it holds: each is finished or given back."""
        self.loop = asyncio.get_running_loop()
        self.run_logs = RunLogs(self.store, self.settings)
        self._finisher = Finisher(self.store, self._settled)
        self._slots = Slots(self._concurrency, self._run_one, self._slots_are_slow)
        self._heart = Heart(self)
        self._watcher = Watcher(self, self._claimer, self._heart, self._scheduler)
        if any(task.spec.capture for task in self._tasks.values()):
            watch_logging()
        helpers = self._started_helpers()
        unlisten = await self.store.listen(self._watcher.heard, worker=self.id)
        life = asyncio.create_task(self._live())
        try:
            await asyncio.shield(life)
        except asyncio.CancelledError:
            # Not thrown into the middle of a claim, whose jobs nobody would know of then.
            self.stop()
            self.stop()
            await life
            raise
        finally:
            left = await self._let_go(helpers)
            self._heart.stop()
            await unlisten()
            await self._heart.stopped()
            await self._send_tallies()
            await self.run_logs.stop()
            with contextlib.suppress(StorageError):
                await self.store.worker_remove(self.id)
            self._threads.close()
            self._ended.set()
        return WorkerEnd(self._stop_reason or "stopped", self._done_jobs, left + self._threads.working)

    def _started_helpers(self) -> Helpers:
        helpers = Helpers(self._failed)
        helpers.start("The finisher", self._finisher.run())
        helpers.start("The tally", self._send_tallies_now_and_then())
        if self._announcer is not None:
            helpers.start("The announcer", self._announcer.run())
        if self.reaper is not None:
            helpers.start("The reaper", self.reaper.run_in_a_worker())
        if self._scheduler is not None:
            helpers.start("The scheduler", self._scheduler.run())
        return helpers

    async def _live(self) -> None:
        self._heart.start()
        self._lifetime.begin(self._tasks.values(), self.stop)
        await self._register()
        await self._claimer.run()
        await self._wind_down()

    def stop(self, reason: str = "stopped") -> None:
        """Claim no more and wind down. A second call ends the grace period."""
        self._in_a_hurry |= self._stop_reason is not None and reason == "stopped"
        self._stop_reason = self._stop_reason or reason
        self._claimer.stop()
        self._run_ended.set()

    async def stop_and_wait(self) -> None:
        """From any loop."""
        with contextlib.suppress(RuntimeError):  # its loop is closed, so it has ended
            self.loop.call_soon_threadsafe(self.stop)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ended.wait(), self.loop))

    def row(self) -> WorkerRow:
        return WorkerRow(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            machine_id=self._machine_id,
            version=VERSION,
            queues=self._queues,
            tasks=self._task_names,
            concurrency=self._concurrency,
            running=len(self.running),
            draining=self._draining,
            process=self._process,
            heartbeat=self.settings.heartbeat,
        )

    async def _register(self) -> None:
        try:
            await self.store.worker_save(self.row())
        except StorageUnavailable as error:
            log.warning("The worker starts without a database: %s", error)

    # -- for the claimer -----------------------------------------------------------------------------------------------

    @property
    def busy_slots(self) -> int:
        return self._slots.busy

    @property
    def waiting_jobs(self) -> int:
        return len(self._slots.waiting)

    @property
    def outcomes_are_stuck(self) -> bool:
        return self._finisher.stuck

    def is_busy(self) -> bool:
        tells = self._announcer is not None and self._announcer.pending
        return bool(self.running or self._slots.waiting or self._finisher.pending or tells)

    def offer(self, jobs: list[Claimed]) -> None:
        self._tallies.claimed(job.queue for job in jobs)
        self._slots.offer(jobs)

    def give_back_unknown(self, leases: list[Beat]) -> None:
        """Such jobs need not wait for their lease to end."""
        known = self.running.keys() | {job.run_id for job in self._slots.waiting}
        self._give_back([lease for lease in leases if lease.run_id not in known])

    async def announce(self, *, draining: bool) -> None:
        self._draining = draining
        await self.store.worker_save(self.row())

    async def before_leaving(self) -> None:
        """Also what falls due at this very moment is still to be done: a tick, or the last job of a batch."""
        if self._scheduler is not None:
            try:
                await self._scheduler.one_pass()
            except StorageError:
                raise
            except Exception:
                log.exception("What falls due by the clock was not looked at before this worker leaves")

    def _slots_are_slow(self, waiting: list[Claimed]) -> None:
        self._claimer.pace.stalled()
        self._give_back(waiting)

    # -- one job -------------------------------------------------------------------------------------------------------

    async def _run_one(self, claimed: Claimed) -> None:
        try:
            await self._run_and_hand_in(claimed)
        except Exception as error:  # ours, and no task's: nobody may keep up the lease of a run that nobody will end
            self.running.pop(claimed.run_id, None)
            self._failed(f"The run of job {claimed.id}", error)

    async def _run_and_hand_in(self, claimed: Claimed) -> None:
        attempt = Attempt(self, self._tasks[claimed.task], claimed)
        attempt.slot = asyncio.current_task()
        self.running[claimed.run_id] = attempt
        if claimed.lease_seconds < SHORT_LEASE_SECONDS:
            self._heart.beat_soon()
        outcome = await (run_attempt(attempt) if self._on_machine is None else self._on_machine.run(attempt))
        attempt.slot = None
        if attempt.interrupted is not None and attempt.in_thread:
            self._threads.leave_one_behind()
            if attempt.interrupted is Interrupt.DEADLINE:
                self.found_stuck()
        self._claimer.pace.took(time.monotonic() - attempt.started)
        self._done_jobs += 1
        if isinstance(outcome, Completion):
            self._finisher.complete(outcome)
        elif outcome is not None and claimed.run_id in self.running:
            self._finisher.leave(outcome)
        else:
            self.running.pop(claimed.run_id, None)
        self._claimer.has_room()
        self._run_ended.set()

    def _settled(self, run_id: str, accepted: bool) -> None:
        attempt = self.running.pop(run_id, None)
        if attempt is not None and not accepted and not attempt.completed_in_tx:
            claimed = attempt.claimed
            log.warning("Job %s (%s) was taken from this worker; what its run did is lost.", claimed.id, claimed.task)
        if attempt is not None:
            if accepted or attempt.completed_in_tx:
                self._count(attempt)
            self._claimer.freed(attempt.claimed.queue, attempt.claimed.tenant)
            if self._announcer is not None and attempt.task.spec.announce:
                self._announcer.poke()
        if self._scheduler is not None and self._scheduler.batches_open:
            self._scheduler.job_ended(last=not self.running)
        if not self.running:
            self._claimer.wake()
            self._run_ended.set()

    def _announced(self) -> None:
        """There is something to deliver, and perhaps nothing else that keeps this worker."""
        self._claimer.look_everywhere()
        self._run_ended.set()

    def _count(self, attempt: Attempt) -> None:
        claimed, first_line = attempt.claimed, None
        if attempt.first_line is not None and claimed.run_no == 1:
            first_line = claimed.waited_seconds + attempt.first_line - attempt.started
        self._tallies.ended(claimed.queue, attempt.outcome, claimed.waited_seconds, attempt.seconds, first_line)

    async def _send_tallies_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat)
            await self._send_tallies()

    async def _send_tallies(self) -> None:
        await self._tallies.send(self.store)
        if self._on_machine is not None:
            await self._on_machine.send()

    async def call_in_thread(self, fn: Callable[[], Any]) -> Any:
        return await self._threads.call(fn)

    async def call_isolated(self, attempt: Attempt) -> Any:
        return await run_isolated(attempt)

    def take_back_waiting(self) -> list[Claimed]:
        """From any thread: what was claimed but has not started."""
        return self._slots.take_back()

    def _failed(self, what: str, error: BaseException) -> None:
        """A part of the worker itself, for lack of memory as a rule. What else has suffered nobody can say, so a new worker is
        to take its place; whatever runs well has its grace."""
        self._has_failed = True
        self.stop("stuck")
        log.error("%s failed in this worker, which gives its jobs back and recycles itself.", what, exc_info=error)

    def found_stuck(self) -> None:
        """From any thread."""
        self.loop.call_soon_threadsafe(self.stop, "stuck")
        if self._on_stuck is not None and threading.current_thread() is not threading.main_thread():
            self._on_stuck()

    # -- heart and reaper ----------------------------------------------------------------------------------------------

    def beat_answered(self, asked: list[Beat], held: list[Held]) -> None:
        still_held = {lease.run_id: lease for lease in held}
        for beat in asked:
            attempt = self.running.get(beat.run_id)
            lease = still_held.get(beat.run_id)
            if attempt is None or attempt.ended or attempt.completed_in_tx:
                continue  # its outcome is on the way and tells by itself
            if lease is None:
                log.warning("Job %s (%s) was taken from this worker; its run is stopped.", beat.id, attempt.claimed.task)
                attempt.interrupt(Interrupt.LOST)
            elif lease.cancel_requested:
                attempt.request_cancel(lease.cancel_requested_by)

    # -- winding down --------------------------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """No more claims; a grace period for what runs; the rest goes back to the queue at once, uncounted."""
        self._draining = True
        self._give_back(self._slots.take_back())
        with contextlib.suppress(StorageError):
            await self.store.worker_save(self.row())
        await self._until(lambda: self._in_a_hurry or self._all_ended(), self.settings.grace)
        if self._stop_reason == "lifetime" and not self._in_a_hurry:
            self._lifetime.end()
        self._release_running()
        await self._until(self._all_ended, LET_GO_SECONDS)
        self._fence_off_running()
        await self._until(lambda: self._has_failed or not self.is_busy(), max(5.0, self.settings.lease))

    def _all_ended(self) -> bool:
        return all(attempt.ended for attempt in self.running.values())

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        """Or until the time is over. `_run_ended` is set whenever a run has ended or is settled."""
        over_at = self.loop.time() + seconds
        while not done() and self.loop.time() < over_at:
            self._run_ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, over_at - self.loop.time())):
                    await self._run_ended.wait()

    async def _let_go(self, helpers: Helpers) -> int:
        """End our own tasks; how many would not end. If the whole loop is being shut down, the runs were still there: they
        end here, and what the finisher can no longer write is written here."""
        await helpers.end()
        self._give_back(self._slots.take_back())
        self._release_running()
        left = await self._slots.close(LET_GO_SECONDS)
        self._fence_off_running()
        await self._finisher.write_now()
        return left

    def _fence_off_running(self) -> None:
        """Runs that refuse to stop: their jobs go back, whatever they still do is not accepted."""
        for attempt in [attempt for attempt in self.running.values() if not attempt.ended]:
            attempt.ended = True
            self._finisher.leave(self._lifetime.departure(attempt))

    def _release_running(self) -> None:
        for attempt in list(self.running.values()):
            self._lifetime.interrupt(attempt)

    def _give_back(self, jobs: Sequence[Claimed | Beat]) -> None:
        for job in jobs:
            self._finisher.leave(release_of(job))
