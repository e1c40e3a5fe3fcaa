"""One simulation: who is there, what they do, and what goes wrong, all drawn from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

from holdfast.enqueue import Door
from holdfast.errors import HoldfastError
from holdfast.job import Job
from holdfast.processes.reaper import Reaper
from holdfast.processes.scheduler import Scheduler
from holdfast.processes.worker import Worker
from holdfast.schedule import Schedules
from holdfast.store.protocol import UNCHANGED, Store
from holdfast.task import JobSpec
from tests.simulation import tasks
from tests.simulation.invariants import Books, Broken
from tests.simulation.loop import Lane, Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.patches import dead_processes
from tests.simulation.stores import Base, Call

BUSY_SECONDS = 40.0
"""How long things go wrong."""
PATIENCE_SECONDS = 400.0
"""How long all jobs may take to end once nothing goes wrong any more."""
TENANTS = ("north", "south")
FAULTS = ("refused", "refused", "lost", "lost", "lost", "late", "late", "killed before", "killed after", "killed after")


class RolledBack(Exception):
    """Whoever enqueued a job has thought better of it."""


class Seat:
    """What a process has of Holdfast: the program, and a wire of its own to the database."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.door = Door(self)
        self.schedules = Schedules(self)

    def transaction(self) -> Any:
        return self.store.transaction()

    def enqueue_jobs(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> Any:
        return self.door.enqueue(jobs, tx)

    def __getattr__(self, part: str) -> Any:
        return getattr(tasks.hf, part)


class Simulation:
    def __init__(self, seed: int, loop: SimulatedLoop, base: Base) -> None:
        self.rng = random.Random(f"scenario {seed}")
        self.loop = loop
        self.books = tasks.place.books = Books(loop, base)
        tasks.place.transactions = {}
        tasks.place.pause = self._pause
        self.network = Network(loop, random.Random(f"network {seed}"), base, self.books, self)
        self.workers: dict[Process, Worker] = {}
        self.calm = False
        self.fault_rate = self.rng.choice((0.0, 0.005, 0.02, 0.05))
        self.faults_left = self.rng.randint(0, 10)
        self.on_demand = self.rng.random() < 0.3
        """Workers leave when they are idle, and whoever enqueues starts one where there is none."""
        if self.on_demand:
            self.network.pace = 0.8
        self.relied_on: dict[str, set[str]] = {}
        """Job -> the workers whose presence was the reason to start none for it."""
        self.gone_idle: set[str] = set()
        self.were_frozen: set[Process] = set()
        self.workers_made = 0
        self.ticks = self.rng.random() < 0.4
        """Whether a schedule makes jobs, too."""

    # -- what goes wrong

    def on_the_way(self, call: Call) -> str | None:
        if self.calm or not self.faults_left or self.rng.random() >= self.fault_rate:
            return None
        fault = self.rng.choice(FAULTS)
        if fault.startswith("killed") and call.process not in self.workers:
            fault = "lost"
        self.faults_left -= 1
        self._count(fault)
        self.books.note(f"{call.process.name:9} {call.verb}: {fault}")
        return fault

    def killed(self, process: Process) -> None:
        self.books.note(f"{process.name:9} is killed")
        process.alive = False
        dead_processes.add(process.name)
        self.network.base.hang_up(process)
        self.workers.pop(process, None)
        self.loop.forget(process)

    def _count(self, fault: str) -> None:
        self.books.faults[fault] = self.books.faults.get(fault, 0) + 1

    # -- processes

    def process(self, name: str) -> tuple[Lane, Seat]:
        skew = self.rng.choice((0.0, 0.0, -3600.0, 3600.0, 0.7))
        process = Process(name, skew=skew)
        seat = Seat(self.network.wire(process))
        tasks.place.transactions[process] = seat.transaction
        return self.loop.lane(name, process), seat

    async def _pause(self) -> None:
        """Inside a transaction. On SQLite nobody else could write meanwhile, and there are no turns in between."""
        if self.network.base.kind == "postgres":
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.5, 3.0)))

    def start_worker(self, **options: Any) -> None:
        self.workers_made += 1
        lane, seat = self.process(f"worker {self.workers_made}")
        idle = self.rng.choice((0.0, 0.0, 1.0)) if self.on_demand else self.rng.choice((None, None, None, 6.0))
        given = {"concurrency": self.rng.randint(1, 3), "exit_when_idle": idle, "reap": self.rng.random() < 0.7, **options}
        scheduler = Scheduler(seat) if self.ticks else None
        worker = Worker(seat, tasks.hf.settings, tasks.hf.tasks, queues=["default", "side"], scheduler=scheduler, **given)
        worker._process = lane.process.name
        self.workers[lane.process] = worker
        self.books.note(f"{lane.name:9} starts: {given}")
        self.loop.spawn(lane, self._work(lane, worker))

    async def _work(self, lane: Lane, worker: Worker) -> None:
        end = await worker.run()
        self.books.note(f"{lane.name:9} ends: {end.reason}")
        self.workers.pop(lane.process, None)
        if end.reason == "idle":
            self.gone_idle.add(worker.id)
            self._nobody_is_left_behind(list(self.relied_on))
        if worker.is_busy() and lane.process not in self.were_frozen:  # those may have slept through all of their patience
            self.loop.fail(Broken(f"{lane.name} has ended and still holds {list(worker.running)}"))

    def _nobody_is_left_behind(self, job_ids: list[str]) -> None:
        """Whoever enqueued a job and saw workers need not start one; then the last of these must not leave without it."""
        for job_id in job_ids:
            job, relied_on = self.books.jobs[job_id], self.relied_on[job_id]
            waits = job.state == "queued" and job.hold is None and job.run_no == 0
            if (
                waits
                and job.tenant is None
                and job.order_key is None
                and job.queue == "default"
                and relied_on <= self.gone_idle
            ):
                self.loop.fail(Broken(f"job {job.seq} waits, and the last worker that was there for it has left as idle"))

    # -- actors

    async def run(self) -> None:
        overseer = self.process("overseer")[1]
        self.calm = True
        async with overseer.transaction() as tx:
            await tx.execute("CREATE TABLE ledger (run_id text)")
        for tenant in TENANTS:
            await overseer.store.tenant_set(tenant, **_limit(self.rng.randint(1, 3)))
        await overseer.store.queue_set("side", max_running=self.rng.choice((None, 1, 2)), by=None)
        if self.ticks:
            every = self.rng.choice((4.0, 10.0))
            missed: Any = self.rng.choice(("skip", "once"))
            await overseer.schedules.set("ticks", "work", every, args={"seconds": 0.5}, missed=missed)
        self.calm = False
        for _ in range(0 if self.on_demand else self.rng.randint(1, 3)):
            self.start_worker()
        actors = [self._produce, self._produce, self._meddle, self._break]
        if self.rng.random() < 0.5:
            actors.append(self._reap)
        doing = []
        for number, actor in enumerate(actors):
            lane, seat = self.process(f"{actor.__name__.strip('_')} {number}")
            doing.append(self.loop.spawn(lane, actor(seat)))
        await asyncio.sleep(BUSY_SECONDS)
        for task in doing:
            task.cancel()
        await self._come_to_an_end(overseer)

    async def _produce(self, seat: Seat) -> None:
        for _ in range(self.rng.randint(3, 7) if self.on_demand else self.rng.randint(2, 6)):
            gap = self.rng.expovariate(1 / 3) if self.on_demand else self.rng.choice((0.0, 0.0, 0.5, 2.0, 6.0))
            await asyncio.sleep(gap)
            spec = self._draw_job()
            with contextlib.suppress(HoldfastError, RolledBack):
                job = await (self._enqueue_in_transaction(seat, spec) if self.rng.random() < 0.3 else self._enqueue(seat, spec))
                self.books.accepted.add(job.id)
                self.books.note(f"job {self.books.jobs[job.id].seq} is accepted: {_told(spec)}")
                await self._start_if_nobody_is_there(seat, job.id)

    async def _enqueue(self, seat: Seat, spec: JobSpec[Any]) -> Job[Any]:
        (job,) = await seat.door.enqueue([spec], None)
        return job

    async def _enqueue_in_transaction(self, seat: Seat, spec: JobSpec[Any]) -> Job[Any]:
        """There if and only if that commits."""
        rolled_back = self.rng.random() < 0.3
        async with seat.transaction() as tx:
            (job,) = await seat.door.enqueue([spec], tx)
            await self._pause()
            if rolled_back:
                if job.created:
                    self.books.rolled_back.add(job.id)
                raise RolledBack
        return job

    def _draw_job(self) -> JobSpec[Any]:
        if self.on_demand and self.rng.random() < 0.8:
            return tasks.hf.tasks["work"].job(seconds=self.rng.choice((0.0, 0.5)))
        seconds = self.rng.choice((0.0, 0.5, 3.0, 9.0, 14.0))
        name = self.rng.choice(
            (
                "work",
                "work",
                "work",
                "stoppable",
                "flaky",
                "hopeless",
                "sleepy",
                "stepwise",
                "slow",
                "blocking",
                "booked",
                "booked",
            )
        )
        more = {
            "flaky": {"failures": self.rng.randint(1, 3)},
            "sleepy": {"naps": self.rng.randint(1, 2)},
            "booked": {"changes": self.rng.choice((0, 0, 1))},
        }.get(name, {})
        options: dict[str, Any] = {
            "tenant": self.rng.choice((None, *TENANTS)),
            "order": self.rng.choice((None, None, "a", "b")),
            "queue": self.rng.choice(("default", "default", "side")),
            "priority": self.rng.choice((0, 0, 5)),
            # Not for one that blocks: it could not be retried while one with its key waits, perhaps behind it.
            "unique": None if name == "blocking" else self.rng.choice((None, None, None, "u")),
            "delay": self.rng.choice((0.0, 0.0, 0.0, 5.0)),
        }
        return tasks.hf.tasks[name].options(**options).job(seconds=seconds, **more)

    async def _start_if_nobody_is_there(self, seat: Seat, job_id: str) -> None:
        """As a provider of machines does it: only after the commit, and only if no worker is there that is not leaving."""
        if self.on_demand:
            rows = await seat.store.worker_list()
            there = {row.id for row in rows if not row.draining}
            if there:
                self.relied_on[job_id] = there
                self._nobody_is_left_behind([job_id])  # they may have left while the list was on its way
            else:
                self.start_worker()

    async def _meddle(self, seat: Seat) -> None:
        """Somebody cancels, retries, and changes limits."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 3))
            job_id = self.rng.choice([*self.books.jobs, ""])
            what = self.rng.choice(("cancel", "cancel", "retry", "retry", "retry", "tenant", "queue"))
            with contextlib.suppress(HoldfastError):
                if what == "cancel":
                    await seat.store.job_cancel(job_id, "somebody")
                elif what == "retry":
                    self.relied_on.pop(job_id, None)
                    await seat.store.job_retry_if_ended(job_id, "somebody")
                    await self._start_if_nobody_is_there(seat, job_id)
                elif what == "tenant":
                    await seat.store.tenant_set(self.rng.choice(TENANTS), **_limit(self.rng.randint(0, 3)))
                else:
                    await seat.store.queue_set("side", max_running=self.rng.choice((None, 0, 1, 2)), by=None)

    async def _reap(self, seat: Seat) -> None:
        await Reaper(seat.store, tasks.hf.settings, interval=3.0).run()

    async def _break(self, seat: Seat) -> None:
        """Kills, freezes, stops and starts workers."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 6))
            there = list(self.workers)
            if len(there) < 3 and self.rng.random() < 0.5:
                self.start_worker()
            elif there:
                busy = [process for process in there if self.workers[process].running]
                process = self.rng.choice(busy or there)
                what = self.rng.choice(("kill", "freeze", "freeze", "freeze", "stop"))
                if what == "kill":
                    self._count("killed")
                    self.killed(process)
                elif what == "stop":
                    self._count("stopped")
                    self.books.note(f"{process.name:9} is told to stop")
                    self.workers[process].stop()
                elif not process.frozen:
                    self._freeze(process, self.rng.choice((2.0, 18.0, 22.0, 26.0, 30.0)))

    def _freeze(self, process: Process, seconds: float) -> None:
        self._count("frozen")
        self.books.note(f"{process.name:9} freezes for {seconds:g} s")
        process.frozen = True
        self.were_frozen.add(process)
        self.loop.call_later(seconds, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        self.books.note(f"{process.name:9} thaws")
        process.thaw()

    # -- the end

    async def _come_to_an_end(self, seat: Seat) -> None:
        """Nothing goes wrong any more, and a healthy worker is there: every job ends, and every place is free again."""
        self.calm = True
        self.books.note("overseer  all is calm from here on")
        for process in list(self.workers):
            process.thaw()
        store = seat.store
        for tenant in TENANTS:
            await store.tenant_set(tenant, **_limit(2))
        await store.queue_set("side", max_running=None, by=None)
        if self.ticks:
            await seat.schedules.remove("ticks")
        self.start_worker(reap=True, exit_when_idle=None)
        ends_at = self.loop.now + PATIENCE_SECONDS
        while any(not job.has_ended for job in self.books.jobs.values()):
            if self.loop.now > ends_at:
                break
            await asyncio.sleep(4.0)
            for job in list(self.books.jobs.values()):
                if job.state == "failed" and job.order_blocks:
                    with contextlib.suppress(HoldfastError):
                        await store.job_retry_if_ended(job.id, "overseer")
        for sentence in self.books.ends():
            raise Broken(sentence)
        await self._nothing_is_kept(store)

    async def _nothing_is_kept(self, store: Store) -> None:
        for tenant in TENANTS:
            if (await store.tenant_get(tenant)).running:
                raise Broken(f"tenant {tenant} is thought to run something")
        for worker in list(self.workers.values()):
            worker.stop()
        ends_at = self.loop.now + PATIENCE_SECONDS
        while self.workers:
            if self.loop.now > ends_at:
                raise Broken(f"{', '.join(process.name for process in self.workers)} did not stop")
            await asyncio.sleep(1.0)
        if any(not job.has_ended for job in self.books.jobs.values()):
            raise Broken("a job that had ended began again")


def _told(spec: JobSpec[Any]) -> str:
    options = {name: getattr(spec.options, name) for name in spec.options.__struct_fields__}
    return f"{spec.task.name}{spec.args.decode()} " + " ".join(f"{name}={value}" for name, value in options.items() if value)


def _limit(most: int) -> dict[str, Any]:
    return {"plan": UNCHANGED, "max_running": most, "queue_depth": UNCHANGED, "by": None}
