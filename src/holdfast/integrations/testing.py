"""What the pytest plugin is made of, for whoever tests by other means."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Job, State
from holdfast.app import open_store
from holdfast.clock import DatabaseClock, ManualClock
from holdfast.errors import JobFailed
from holdfast.portal import Portal
from holdfast.settings import load_settings
from holdfast.task import Task

LIST_MAX = 200


def migrated_file(app: Holdfast, path: Path) -> Path:
    """An SQLite file with the app's tables, to be copied."""
    fresh = Holdfast(f"sqlite:///{path}")
    fresh.extensions = app.extensions
    fresh.migrate_sync()
    fresh.close()
    return path


def copied(template: Path, path: Path) -> Path:
    """With what is in its write-ahead log, where that was not folded in."""
    for suffix in ("", "-wal"):
        if (source := Path(f"{template}{suffix}")).exists():
            shutil.copyfile(source, f"{path}{suffix}")
    return path


@contextmanager
def on_file(app: Holdfast, path: Path, clock: DatabaseClock) -> Iterator[None]:
    """For as long as this lasts, the app's jobs are in that file, and its time is the clock's."""
    before = app.store, app.clock
    app.clock = clock
    app.store = store = open_store(load_settings(f"sqlite:///{path}"), clock)
    try:
        yield
    finally:
        app.store, app.clock = before
        portal = Portal()
        try:
            portal.submit(store.close()).result(30)
        finally:
            portal.close()


class JobsInTest:
    """Plain calls, from async and sync tests alike; only `drain` has a twin: it runs the tasks on the test's own loop."""

    def __init__(self, app: Holdfast, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock

    async def drain(self) -> None:
        """Run what can run now, and what that enqueues, until nothing is left. What waits for its time stays."""
        await self.app.run_worker(exit_when_idle=0.0, reap=False, schedule=False)

    def drain_sync(self) -> None:
        self._read(self.drain())

    def enqueued(self, task: Task[..., Any] | str | None = None) -> list[Job[Any]]:
        """The jobs there are, oldest first; of one task."""
        name = task.name if isinstance(task, Task) else task
        where = {} if name is None else {"task": name}
        found: list[Job[Any]] = []
        while page := self._read(self.app.jobs(limit=LIST_MAX, cursor=found[-1].id if found else None, **where)):
            found += page
        return found[::-1]

    def assert_enqueued(
        self, task: Task[..., Any] | str, *, count: int | None = None, tenant: str | None = None, **arguments: Any
    ) -> list[Job[Any]]:
        """At least one job of this task with these arguments (others may be there), or exactly `count` of them."""
        jobs = self.enqueued(task)
        fitting = [
            job
            for job in jobs
            if (tenant is None or job.tenant == tenant)
            and all(name in job.args and job.args[name] == value for name, value in arguments.items())
        ]
        if len(fitting) == count or (count is None and fitting):
            return fitting
        name = task.name if isinstance(task, Task) else task
        wanted = "at least one" if count is None else count
        there = ", ".join(f"{job.args!r} ({job.status})" for job in jobs) or "none"
        raise AssertionError(f"expected {wanted} of {name} with {arguments!r}, found {len(fitting)}; there are: {there}")

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Every job runs where it is enqueued, unless that is in a transaction of the test's own (`tx=`)."""
        enqueue, enqueue_sync = self.app.enqueue_jobs, self.app.enqueue_jobs_sync

        async def run_at_once(jobs: Any, tx: Any) -> list[Job[Any]]:
            made = await enqueue(jobs, tx)
            if tx is None and not self._nested():
                await self.drain()
                for job in made:
                    _raise_if_failed(await self.app.get(job.id))
            return made

        def run_at_once_sync(jobs: Any, tx: Any) -> list[Job[Any]]:
            made = enqueue_sync(jobs, tx)
            if tx is None:
                self.drain_sync()
                for job in made:
                    _raise_if_failed(self._read(self.app.get(job.id)))
            return made

        self.app.enqueue_jobs = run_at_once  # type: ignore[method-assign]
        self.app.enqueue_jobs_sync = run_at_once_sync  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.app.enqueue_jobs, self.app.enqueue_jobs_sync  # the class's own are there again

    def _nested(self) -> bool:
        """A task that enqueues is run by a drain already, which goes on with the new job."""
        from holdfast.context import current_run

        return current_run.get(None) is not None

    def _read(self, work: Any) -> Any:
        """On a loop of its own, so that a test with a running loop may call it as well."""
        portal = Portal()
        try:
            return portal.submit(work).result(60)
        finally:
            portal.close()


def _raise_if_failed(job: Job[Any]) -> None:
    if job.state is State.FAILED or (job.state is State.QUEUED and job.error_code is not None):
        raise JobFailed(f"{job.task} failed: {job.error_message}", job.error_code)
