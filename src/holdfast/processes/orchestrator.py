"""The orchestrator: wakes machines for work that nobody serves, and ends those that outlive their time.

Asked after an enqueue has committed, in the background; by each recovery pass; and as a part of the server, the reaper and
`dev`. Whatever goes wrong here, the jobs stay queued and the next pass tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import Protocol

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.errors import StorageError
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.machines.protocol import (
    Machine,
    NoCapacity,
    Provider,
    ProviderBusy,
    ProviderDenied,
    ProviderError,
    QuotaReached,
    StartRefused,
)
from holdfast.machines.reconcile import LIST_LAG_SECONDS, Create, Decision, Limits, Seen, Start, decide, gone
from holdfast.machines.records import Records, Turn
from holdfast.reap import reap_dead
from holdfast.settings import Settings
from holdfast.store.protocol import Demand, Store, Tally, WorkerRow
from holdfast.tally import ALL_QUEUES
from holdfast.why import ALIVE_SECONDS

log = logging.getLogger("holdfast")

DEMAND_CAP = 1_000
"""Jobs of one tenant in one queue that a look counts at the most."""
LOOKS_MAX = 5
"""Of one turn: those that ask all the time must not keep it going for ever."""
REST_SECONDS = 0.2
"""Between two looks that somebody asked for: a thousand enqueues are answered by a few looks."""
POLL_SECONDS = 15.0
CLOSE_SECONDS = 5.0
"""What a program that enqueues and ends waits for its last look."""
VAIN_STARTS = 3
VAIN_SECONDS = (60.0, 3600.0)
"""After so many machines for one job that still nobody serves, the next ones come ever later: something is wrong with them."""


WORDS = {
    "machine.burst": "All machines of the pool are busy: one more was made for the rush.",
    "machine.at_maximum": "As many machines are up as there may be: the job stays queued until a worker is free.",
    "machine.start_failed": "No machine could be started: the job stays queued, and the recovery pass tries again.",
    "machine.denied": "The provider of machines refuses our token: the job stays queued until somebody mends it.",
    "machine.quota": "The account of the machine provider may have no more machines: the job stays queued.",
}
"""What a tenant may read."""


class Pass(msgspec.Struct):
    """What came of one look."""

    started: list[str] = []
    stopped: list[str] = []
    destroyed: list[str] = []
    problem: str | None = None


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> DatabaseClock: ...


class Orchestrator:
    def __init__(self, platform: Platform, provider: Provider) -> None:
        self.provider = provider
        self._platform = platform
        self._records = Records(platform.store, platform.clock, provider.name)
        self._asking: asyncio.Task[None] | None = None
        self._asked_again = False
        self._stopping = asyncio.Event()
        self._heard = asyncio.Event()
        reset_after_fork(self)

    @property
    def records(self) -> Records:
        return self._records

    # -- asked by an enqueue

    def _reset_after_fork(self) -> None:
        """The look that is under way goes on in the parent."""
        keep_for_parent(self._asking)
        self._asking = None

    def ask(self) -> None:
        """Look soon, in the background. Never waits and never raises; ten thousand calls cost a few looks."""
        self._asked_again = True
        if self._asking is None or self._asking.done():
            with contextlib.suppress(RuntimeError):  # no loop runs here: the notification or the next recovery pass does it
                self._asking = asyncio.get_running_loop().create_task(self._answer(), name="holdfast machines")

    async def _answer(self) -> None:
        while self._asked_again:
            self._asked_again = False
            await self._look_without_failing(supervise=False)
            if self._asked_again:
                await asyncio.sleep(REST_SECONDS)

    async def _look_without_failing(self, *, supervise: bool) -> Pass:
        try:
            return await self.look(supervise=supervise)
        except StorageError as error:
            log.warning("Nobody looked whether machines are needed, the next recovery pass does: %s", error)
        except Exception:
            log.exception("The look for needed machines failed; the next recovery pass looks again")
        return Pass(problem="the look failed")

    async def aclose(self) -> None:
        self.stop()
        asking = self._asking
        if asking is not None and asking.get_loop() is asyncio.get_running_loop():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await asyncio.shield(asking)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await self.provider.aclose()

    # -- as a process

    async def run(self) -> None:
        """Until stopped: looks when it hears of new jobs, so that those of a `tx=` enqueue get their machine as well, and every
        few seconds for those that fell due or have waited too long. Old machines are ended by the recovery pass."""
        loop = asyncio.get_running_loop()

        def heard(what: str) -> None:
            if what == "" or what.startswith("job:"):
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._heard.set)

        unlisten = await self._platform.store.listen(heard)
        try:
            while not self._stopping.is_set():
                self._heard.clear()
                await self._look_without_failing(supervise=False)
                await _wait(REST_SECONDS, self._stopping)
                await _wait(max(1.0, min(self._platform.settings.machine_wait, POLL_SECONDS)), self._heard)
        finally:
            await unlisten()

    def stop(self) -> None:
        self._stopping.set()
        self._heard.set()

    async def recover(self) -> int:
        """For a recovery pass: how many machines were started."""
        return len((await self._look_without_failing(supervise=True)).started)

    # -- one decision

    async def look(self, *, supervise: bool = True) -> Pass:
        """Decide once, and do it, unless another process is deciding: that one looks once more then. `supervise`: also when no
        job waits, for machines that must end and for what they cost."""
        done = Pass()
        if not supervise and not await self._may_need():
            return done
        turn = await self._records.take_turn()
        if turn is None:
            return done
        try:
            for _ in range(LOOKS_MAX):
                await self._decide_and_do(turn, done, supervise)
                if done.problem or await self._records.leave_turn(turn):
                    break
        finally:
            with contextlib.suppress(StorageError):
                await self._records.drop_turn(turn)
        return done

    async def _demand(self) -> list[Demand]:
        settings = self._platform.settings
        enough = settings.machine_max * settings.machine_concurrency
        return await self._platform.store.job_demand(enough=enough, cap=min(DEMAND_CAP, enough))

    async def live_workers(self) -> list[WorkerRow]:
        now = self._records.now()
        rows = await self._platform.store.worker_list()
        return [row for row in rows if row.last_seen_at and (now - row.last_seen_at).total_seconds() < ALIVE_SECONDS]

    async def _may_need(self) -> bool:
        """Before the provider is asked, or anything is written. First the jobs, then the workers: one that goes says so before
        it looks for jobs a last time."""
        demand = await self._demand()
        return bool(demand and decide(demand, await self.live_workers(), [], self.limits(None)).needed)

    def limits(self, pool: int | None) -> Limits:
        settings = self._platform.settings
        return Limits(
            pool=settings.machine_pool if pool is None else pool,
            most=settings.machine_max,
            slots=settings.machine_concurrency,
            wait=settings.machine_wait,
            boot=settings.machine_boot,
            lifetime=settings.machine_lifetime,
            grace=settings.grace,
            lag=getattr(self.provider, "list_lag_seconds", LIST_LAG_SECONDS),
            poll=settings.poll_idle,
        )

    async def _decide_and_do(self, turn: Turn, done: Pass, supervise: bool) -> None:
        if not supervise and not await self._may_need():
            return
        demand = await self._demand()
        workers, known = await self.live_workers(), await self._records.ids()
        # A list may leave machines out, by a filter that changed or a short answer: a worker that reports is no dead one.
        known -= {worker.machine_id for worker in workers if worker.machine_id}
        try:
            listed = await self.provider.list()
        except ProviderError as error:
            await self._failed("list its machines", error, turn, done, demand[0] if demand else None)
            return
        machines = await self._records.merge(listed, count=True)
        if lost := gone(known, machines, self.limits(turn.pool)):
            await reap_dead(self._platform.store, self._platform.settings, lost)
        decision = decide(demand, workers, machines, self.limits(turn.pool))
        await self._end(decision, turn, done)
        await self._begin(decision, machines, turn, done)

    async def _end(self, decision: Decision, turn: Turn, done: Pass) -> None:
        for machine in decision.stop:
            log.warning("Machine %s is older than it may get and is stopped.", machine.name)
            await self.stop_machine(machine, done)
        for machine in decision.destroy:
            log.warning("Machine %s (%s) does not end by itself and is destroyed.", machine.name, machine.state)
            await self.destroy_machine(machine, done)

    async def stop_machine(self, machine: Machine, done: Pass | None = None) -> None:
        await self._records.stop_asked(machine.name)
        try:
            await self.provider.stop(machine.id)
            (done or Pass()).stopped.append(machine.name)
        except ProviderError as error:
            log.error("Machine %s could not be stopped, the next pass tries again: %s", machine.name, error)

    async def destroy_machine(self, machine: Machine, done: Pass | None = None) -> None:
        try:
            await self.provider.destroy(machine.id)
            (done or Pass()).destroyed.append(machine.name)
        except ProviderError as error:
            log.error("Machine %s could not be destroyed, the next pass tries again: %s", machine.name, error)

    # -- starting

    async def _begin(self, decision: Decision, machines: list[Seen], turn: Turn, done: Pass) -> None:
        if not decision.needed:
            await self._records.no_problem(turn)
            return
        if decision.at_maximum:
            most = self._platform.settings.machine_max
            text = f"The maximum of {most} machines is reached: nothing is started, the job stays queued."
            await self._warn(logging.ERROR, "machine.at_maximum", text, turn, done, decision.oldest)
            return
        if not self._worth_it(decision, turn):
            return
        missing, refused = decision.start, 0
        for candidate in decision.candidates:
            if missing and not done.problem and await self._records.keep_turn(turn):
                came = await self._start(candidate, decision, turn, done)
                missing -= came
                refused += not came
        if missing and refused and not done.problem:
            text = f"{refused} machines could not be started and none is left to try; the recovery pass tries again."
            await self._warn(logging.ERROR, "machine.start_failed", text, turn, done, decision.oldest)
        if done.started and not done.problem:
            await self._count_vain(decision, turn, len(done.started))
            await self._records.no_problem(turn)

    async def _start(self, candidate: Start | Create, decision: Decision, turn: Turn, done: Pass) -> bool:
        """Whether it started. What is refused to this one machine may be granted to the next."""
        if isinstance(candidate, Start):
            name, kind, machine_id = candidate.machine.name, candidate.machine.kind, candidate.machine.id
        else:
            name, kind, machine_id = candidate.name or f"{candidate.kind}-{secrets.token_hex(4)}", candidate.kind, None
        await self._records.asked(name, kind, machine_id)
        try:
            if isinstance(candidate, Start):
                await self.provider.start(candidate.machine.id)
            else:
                made = await self.provider.create(name, kind)
                await self._records.asked(name, kind, made.id)
        except (StartRefused, NoCapacity) as error:
            log.warning("Machine %s was not started, another one is tried: %s", name, error)
            await (self._records.refused(name) if isinstance(candidate, Start) else self._records.forget(name))
            await self._tally("machine_failures", "refused")
            return False
        except ProviderError as error:
            # After a lost answer it may be there all the same: it is remembered under its name, and never made twice.
            if isinstance(error, (ProviderDenied, QuotaReached, ProviderBusy)):
                await (self._records.refused(name) if isinstance(candidate, Start) else self._records.forget(name))
            await self._failed(f"start machine {name}", error, turn, done, decision.oldest)
            return False
        done.started.append(name)
        log.info("Machine %s was started.", name)
        await self._tally("machine_starts", kind)
        if kind == "burst" and isinstance(candidate, Create):
            text = f"All machines of the pool are busy: machine {name} was made for the rush."
            await self._warn(logging.WARNING, "machine.burst", text, turn, None, decision.oldest)
        return True

    # -- what does not work

    async def _failed(self, what: str, error: ProviderError, turn: Turn, done: Pass, about: Demand | None) -> None:
        mark = f" (request {error.request_id})" if error.request_id else ""
        text = f"Provider {self.provider.name} did not {what}: {error}{mark}"
        level, type_ = logging.ERROR, "machine.start_failed"
        if isinstance(error, ProviderDenied):
            level, type_ = logging.CRITICAL, "machine.denied"
            text += " Mend its token: nothing starts until then."
        elif isinstance(error, QuotaReached):
            type_ = "machine.quota"
        await self._tally("machine_failures", type_.partition(".")[2])
        await self._warn(level, type_, text, turn, done, about)

    async def _warn(self, level: int, type_: str, text: str, turn: Turn, done: Pass | None, about: Demand | None) -> None:
        """Into the log always; once, however many passes find the same, as an event of the job that waits longest, in words
        that name no machine. The job's run tells it too when it comes to run."""
        log.log(level, "%s", text)
        if done is not None:
            done.problem = text
        telling = f"{type_} {about.oldest_id if about else ''}"
        is_new = telling not in (turn.told or "").splitlines()
        if is_new:
            await self._records.event(type_, about, {"message": WORDS[type_], "provider": self.provider.name})
        await self._records.tell(turn, type_ if done is not None else None, telling if is_new else None)

    def _worth_it(self, decision: Decision, turn: Turn) -> bool:
        """Whether machines that were started for this very job, and never came to serve it, leave any hope for another."""
        about = decision.oldest
        if about is None or not decision.unserved or turn.vain_job != about.oldest_id or turn.vain_seconds is None:
            return True
        over = turn.vain_count - VAIN_STARTS
        first, most = VAIN_SECONDS
        return over < 0 or turn.vain_seconds >= min(most, first * 2.0 ** min(over, 20))

    async def _count_vain(self, decision: Decision, turn: Turn, started: int) -> None:
        about = decision.oldest
        if about is not None and decision.unserved:
            before = turn.vain_count if turn.vain_job == about.oldest_id else 0
            turn.vain_job, turn.vain_count = about.oldest_id, before + 1
            await self._records.in_vain(about.oldest_id, before + 1)

    async def _tally(self, name: str, label: str) -> None:
        with contextlib.suppress(StorageError):
            await self._platform.store.tally_add([Tally(name, ALL_QUEUES, label, 1)])


async def _wait(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
