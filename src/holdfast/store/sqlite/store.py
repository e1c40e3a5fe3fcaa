"""The store on an SQLite file: reads in a few threads, all writes through one, statements in the `.sql` files beside."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from holdfast.clock import DatabaseClock
from holdfast.errors import ConfigError, NotMigrated
from holdfast.forking import keep_for_parent, pause_for_fork, reset_after_fork
from holdfast.job import Job, Run, State
from holdfast.process_identity import is_dead
from holdfast.store import shared
from holdfast.store.protocol import (
    HOPS,
    NO_CURSORS,
    Acted,
    Backoff,
    Beat,
    CallerStatement,
    Claim,
    Completion,
    Demand,
    Departure,
    Glance,
    Held,
    Inserted,
    JobFilter,
    NewJob,
    Reaped,
    Retention,
    StepResult,
    Table,
    Wake,
    WorkerRow,
)
from holdfast.store.sqlite import claim, demand, finish, insert, lists, look, migrate, reap, rows, steer, transaction
from holdfast.store.sqlite.connection import MEMORY, open_connection, require_folder, require_new_enough_sqlite
from holdfast.store.sqlite.in_use import InUse
from holdfast.store.sqlite.logs import LogVerbs
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json, now_of
from holdfast.store.sqlite.stats import StatsVerbs
from holdfast.store.sqlite.tenants import TenantVerbs
from holdfast.store.sqlite.writer import Writer
from holdfast.store.tables import tables_of

T = TypeVar("T")
Operation = Callable[[Session], T]


class SqliteStore(TenantVerbs, LogVerbs, StatsVerbs):
    name = "sqlite"

    def __init__(self, path: str, *, clock: DatabaseClock | None = None) -> None:
        require_new_enough_sqlite()
        # Of now: after os.chdir the same relative path means another file.
        self._path = path = path if path == MEMORY else os.path.abspath(path)
        self._clock = clock or DatabaseClock()
        self._may_create = False
        self._checked = False
        self._was_idle = False
        self._wakes: list[Wake] = []
        self._log_wakes: list[Wake] = []
        self._in_use = InUse()
        self._writer = Writer(path, self._open_writer, self._new_session, self._tell, self._in_use)
        self._readers = Readers(path, lambda: open_connection(path, read_only=True), self._new_session, self._in_use)
        pause_for_fork(self)
        reset_after_fork(self)

    def _new_session(self, connection: sqlite3.Connection) -> Session:
        return Session(connection, now_of(self._clock))

    def _open_writer(self) -> sqlite3.Connection:
        require_folder(self._path)
        return open_connection(self._path, create=self._may_create)

    async def _read(self, operation: Operation[T]) -> T:
        await self._check()
        return await self._look(operation)

    async def _write(self, operation: Operation[T]) -> T:
        await self._check()
        return await self._writer.run(operation)

    async def _look(self, operation: Operation[T]) -> T:
        return await (self._writer if self._path == MEMORY else self._readers).run(operation)

    async def _check(self) -> None:
        if not self._checked:
            await self.schema_version()
            self._checked = True

    # -- the file itself -----------------------------------------------------------------------------------------------

    async def schema_migrate(self) -> list[str]:
        with suppress(NotMigrated):
            await self._check()  # a file that is not ours is refused before anything in it is touched
            return []
        self._may_create = True
        done = await self._writer.run(lambda session: migrate.migrate(session, self._path))
        self._checked = True
        return done

    async def schema_version(self) -> int:
        migrate.require_file(self._path)
        return await self._look(lambda session: migrate.check_version(session, self._path))

    async def extension_migrate(self, name: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
        return await self._write(lambda session: migrate.migrate_component(session, name, migrations))

    def schema_scripts(
        self, applied: Mapping[str, Collection[int]], extensions: Mapping[str, Sequence[tuple[int, str, str]]]
    ) -> list[str]:
        return migrate.scripts(applied, extensions)

    async def table_list(self) -> list[Table]:
        found = await self._look(lambda session: session.all("table_list"))
        return tables_of([dict(row) for row in found])

    async def rows_guard(self, *, only_if_on: bool = False) -> bool:
        if only_if_on:
            return False
        raise ConfigError("Row level security needs PostgreSQL; an SQLite file is guarded by its permissions alone.")

    async def close(self) -> None:
        self._wakes.clear()
        self._log_wakes.clear()
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._readers.close)

    def pause_for_fork(self) -> None:
        if self._in_use.pause() and self._path != MEMORY:
            self._writer.close_connection()
            self._readers.close_connections()

    def resume_after_fork(self) -> None:
        self._in_use.resume()

    def _reset_after_fork(self) -> None:
        keep_for_parent(self._in_use, list(self._wakes))
        self._wakes.clear()
        self._log_wakes.clear()
        self._in_use = InUse()
        self._writer.reset_after_fork(self._in_use)
        self._readers.reset_after_fork(self._in_use)

    async def leave_loop(self) -> None:
        """Nothing here belongs to a loop: threads and connections are shared by all of them."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[transaction.SqliteTransaction]:
        await self._check()
        if self._path == MEMORY:
            opened = transaction.on_writers_connection(self._path, self._writer, self._clock)
        else:
            opened = transaction.on_own_connection(self._path, self._clock, self._in_use)
        async with opened as ours:
            yield ours
        self._tell({""})

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        def work(session: Session) -> list[dict[str, Any]]:
            found = session.connection.execute(shared.SQLITE[statement], shared.sqlite_values(args, session.now)).fetchall()
            return [shared.from_sqlite(row) for row in found]

        return await (self._write(work) if statement in shared.WRITING else self._read(work))

    def shared_statement(self, statement: str, *args: Any) -> CallerStatement:
        return shared.caller_statement_for_sqlite(statement, args, now_of(self._clock))

    async def clock_offset(self) -> float:
        return 0.0

    # -- accept --------------------------------------------------------------------------------------------------------

    async def job_insert_many(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        return await self._write(lambda session: insert.insert(session, jobs)) if jobs else []

    def insert_statement(self, jobs: Sequence[NewJob]) -> CallerStatement:
        return insert.statement_for(jobs, now_of(self._clock))

    def inserted_from_rows(self, jobs: Sequence[NewJob], rows: Sequence[Sequence[Any]]) -> list[Inserted]:
        return insert.inserted_from_rows(jobs, rows)

    def forget_statement(self, job_ids: Sequence[str]) -> CallerStatement:
        return CallerStatement(STATEMENTS["job_forget"], as_json(job_ids))

    # -- hand out ------------------------------------------------------------------------------------------------------

    async def job_claim(
        self,
        *,
        worker: str,
        machine: str | None,
        queues: Sequence[str],
        tasks: Sequence[str],
        limit: int,
        cursors: Mapping[str, str | None] = NO_CURSORS,
        hops: int = HOPS,
        hints: Sequence[str] = (),
    ) -> Claim:
        if self._was_idle:
            nothing = await self._read(lambda session: claim.nothing_to_claim(session, queues, tasks))
            if nothing is not None:
                return nothing
        asked = claim.Question(worker, machine, queues, tasks, limit, cursors, hops, hints)
        found = await self._write(lambda session: claim.claim(session, asked))
        self._was_idle = not found.jobs
        return found

    # -- a run speaks; fenced ------------------------------------------------------------------------------------------

    async def lease_extend_if_held(self, beats: Sequence[Beat]) -> list[Held]:
        return await self._write(lambda session: finish.extend_leases(session, beats))

    async def lease_list(self, worker: str) -> list[Beat]:
        return await self._read(lambda session: look.leases(session, worker))

    async def job_complete_if_leased(self, completions: Sequence[Completion]) -> set[str]:
        return await self._write(lambda session: finish.complete(session, completions))

    def complete_statement(self, completion: Completion) -> CallerStatement:
        return finish.complete_statement(completion, now_of(self._clock))

    async def job_leave_if_leased(self, departures: Sequence[Departure]) -> dict[str, State]:
        return await self._write(lambda session: finish.leave(session, departures))

    async def run_states(self, runs: Sequence[tuple[str, str]]) -> dict[str, State]:
        found = await self._read(lambda session: session.all("run_states", runs=as_json(runs)))
        return {row["run_id"]: State(row["state"]) for row in found}

    async def progress_set_if_leased(self, job_id: str, run_id: str, progress: float | None, stage: str | None) -> bool:
        values = {"id": job_id, "run_id": run_id, "progress": progress, "stage": stage}
        return await self._write(lambda session: session.one("progress_set", **values) is not None)

    async def step_save_if_leased(
        self, job_id: str, run_id: str, name: str, fingerprint: str, result: str
    ) -> StepResult | None:
        values = {"id": job_id, "run_id": run_id, "name": name, "fingerprint": fingerprint, "result": result}
        stored = await self._write(lambda session: session.one("step_save", **values))
        return None if stored is None else StepResult(stored["result"])

    async def step_get(self, job_id: str, name: str, fingerprint: str) -> StepResult | None:
        found = await self._read(lambda session: session.one("step_get", job_id=job_id, name=name, fingerprint=fingerprint))
        return None if found is None else StepResult(found["result"])

    # -- people act ----------------------------------------------------------------------------------------------------

    async def job_cancel(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        return await self._write(lambda session: steer.cancel(session, job_id, by, tenant))

    async def job_retry_if_ended(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        return await self._write(lambda session: steer.retry(session, job_id, by, tenant))

    async def job_cancel_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        return await self._write(lambda session: lists.cancel_many(session, where, by, cursor, limit))

    async def job_retry_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        return await self._write(lambda session: lists.retry_many(session, where, by, cursor, limit))

    # -- rescue and forget ---------------------------------------------------------------------------------------------

    async def job_reap(self, *, backoff: Backoff, deadline_grace: float, limit: int, dead: Sequence[str] = ()) -> list[Reaped]:
        return await self._write(lambda session: reap.reap(session, backoff, deadline_grace, limit, dead))

    async def order_heal(self) -> int:
        return await self._write(_heal_orders)

    async def prune(self, retention: Retention, *, limit: int) -> dict[str, int]:
        return await self._write(lambda session: reap.prune(session, retention, limit))

    # -- look ----------------------------------------------------------------------------------------------------------

    async def job_get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        return await self._read(lambda session: look.job(session, job_id, tenant))

    async def job_list(self, where: JobFilter, *, cursor: str | None, limit: int) -> list[Job[Any]]:
        return await self._read(lambda session: lists.jobs(session, where, cursor, limit))

    async def job_glances(self, where: JobFilter, *, limit: int) -> list[Glance]:
        return await self._read(lambda session: lists.glances(session, where, limit))

    async def job_count(self, where: JobFilter, cap: int) -> int:
        return await self._read(lambda session: lists.count(session, where, cap))

    async def job_unserved(self, older_than: float, limit: int, *, look_at: int = 10_000) -> list[tuple[str, str, int]]:
        return await self._read(lambda session: look.unserved(session, older_than, limit, look_at))

    async def job_demand(self, *, enough: int, cap: int) -> list[Demand]:
        return await self._read(lambda session: demand.demand(session, enough, cap))

    async def run_list(self, job_id: str, *, tenant: str | None = None) -> list[Run]:
        return await self._read(lambda session: look.runs(session, job_id, tenant))

    # -- workers -------------------------------------------------------------------------------------------------------

    async def worker_save(self, worker: WorkerRow) -> None:
        await self._write(lambda session: session.run("worker_save", **rows.of_worker(worker)))

    async def worker_seen(self, worker: WorkerRow) -> float | None:
        return await self._write(lambda session: _seen(session, worker))

    async def worker_remove(self, worker_id: str) -> None:
        await self._write(lambda session: session.run("worker_remove", id=worker_id))

    async def worker_list(self) -> list[WorkerRow]:
        return await self._read(lambda session: [rows.worker_of(row) for row in session.all("worker_list")])

    # -- wake-ups ------------------------------------------------------------------------------------------------------

    async def wake(self) -> None:
        await self._write(lambda session: session.wakes.add(""))

    async def listen(self, wake: Wake, *, logs: bool = False, worker: str | None = None) -> Callable[[], Awaitable[None]]:
        self._wakes.append(wake)
        if logs:
            self._log_wakes.append(wake)
        self._writer.watch(True)

        async def stop() -> None:
            with suppress(ValueError):
                self._wakes.remove(wake)
            with suppress(ValueError):
                self._log_wakes.remove(wake)
            self._writer.watch(bool(self._wakes))

        return stop

    @property
    def pooled(self) -> bool:
        return False

    @property
    def listening(self) -> bool:
        return bool(self._wakes)

    def _tell(self, wakes: set[str]) -> None:
        for wake in sorted(wakes):
            for listener in tuple(self._log_wakes if wake.startswith("log:") else self._wakes):
                with suppress(Exception):  # a listener whose loop has ended must not stop the writer
                    listener(wake)


def _seen(session: Session, worker: WorkerRow) -> float | None:
    session.run("worker_seen", **rows.of_worker(worker))
    return 0.0 if any(is_dead(row["process"]) for row in session.all("worker_others", id=worker.id)) else None


def _heal_orders(session: Session) -> int:
    healed = session.all("order_heal")
    for row in healed:
        session.wake_queue(row["queue"])
    return len(healed)
