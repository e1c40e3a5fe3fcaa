"""The store on PostgreSQL: each verb is one round trip, the statements are in the `.sql` files beside this one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.errors import JobNotFound, StorageError
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.ids import first_job_id_at, is_uuid
from holdfast.job import Job, Run, State, current_run_of
from holdfast.store import shared
from holdfast.store.outcomes import cancel_conflict, retry_conflict
from holdfast.store.postgres import connections, insert, migrate, rows
from holdfast.store.postgres.beginnings import Beginnings
from holdfast.store.postgres.connections import Connection, Connections, breaks_constraint
from holdfast.store.postgres.gather import Gathering
from holdfast.store.postgres.listener import Listener
from holdfast.store.postgres.lists import ListVerbs
from holdfast.store.postgres.logs import LogVerbs
from holdfast.store.postgres.stats import StatsVerbs
from holdfast.store.postgres.tenants import STATEMENTS as _SQL
from holdfast.store.postgres.tenants import TenantVerbs
from holdfast.store.protocol import (
    DEMAND_HOPS_MAX,
    HOPS,
    NO_CURSORS,
    Backoff,
    Beat,
    CallerStatement,
    Claim,
    Completion,
    Demand,
    Departure,
    Held,
    Inserted,
    NewJob,
    Reaped,
    Retention,
    StepResult,
    Table,
    Wake,
    WorkerRow,
)
from holdfast.store.tables import tables_of

_encode = msgspec.json.encode


class PostgresTransaction:
    """A transaction of ours that a caller writes through: plain SQL with $1, $2, …"""

    store_kind = "postgres"

    def __init__(self, connection: Connection, connections: Connections, clock: DatabaseClock) -> None:
        self.connection = connection
        self._connections = connections
        self._clock = clock

    async def execute(self, sql: str, *args: Any) -> None:
        with self._connections.errors_translated():
            await self.connection.execute(sql, *args)

    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        with self._connections.errors_translated():
            return [dict(row) for row in await self.connection.fetch(sql, *args)]

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        return await self.fetch(shared.POSTGRES[statement], *args, *_now_for(statement, self._clock))


class PostgresStore(ListVerbs, TenantVerbs, LogVerbs, StatsVerbs):
    name = "postgres"

    def __init__(
        self, url: str, *, clock: DatabaseClock | None = None, shown: str = "PostgreSQL", listen_url: str | None = None
    ) -> None:
        self._connections = Connections(url, shown, listen_url)
        self._clock = clock or DatabaseClock()
        self._checked = False
        self._gathering = Gathering(self._insert_now)
        self._listeners: list[Listener] = []
        self._beginnings = Beginnings()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        keep_for_parent(self._gathering, self._listeners)
        self._gathering, self._listeners = Gathering(self._insert_now), []

    # -- the server itself ---------------------------------------------------------------------------------------------

    async def schema_migrate(self) -> list[str]:
        done = await migrate.migrate(self._connections)
        self._checked = True
        return done

    async def schema_version(self) -> int:
        return await migrate.check_version(self._connections)

    async def extension_migrate(self, name: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
        return await migrate.migrate_extension(self._connections, name, migrations)

    def schema_scripts(
        self, applied: Mapping[str, Collection[int]], extensions: Mapping[str, Sequence[tuple[int, str, str]]]
    ) -> list[str]:
        return migrate.scripts(applied, extensions)

    async def table_list(self) -> list[Table]:
        return tables_of(await self._fetch("table_list"))

    async def rows_guard(self, *, only_if_on: bool = False) -> bool:
        return await migrate.guard_rows(self._connections, only_if_on=only_if_on)

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        await self._connections.close()

    async def leave_loop(self) -> None:
        await self._connections.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        await self._check()
        async with self._connections.transaction() as connection:
            yield PostgresTransaction(connection, self._connections, self._clock)

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        await self._check()
        now = _now_for(statement, self._clock)
        return [dict(row) for row in await self._connections.fetch(shared.POSTGRES[statement], *args, *now)]

    def shared_statement(self, statement: str, *args: Any) -> CallerStatement:
        return shared.caller_statement_for_postgres(statement, (*args, *_now_for(statement, self._clock)))

    async def clock_offset(self) -> float:
        before = time.time()
        (row,) = await self._connections.fetch("SELECT extract(epoch FROM clock_timestamp())::double precision AS now")
        return (before + time.time()) / 2 - float(row["now"])

    async def _check(self) -> None:
        if not self._checked:
            await migrate.check_version(self._connections)
            self._checked = True

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        await self._check()
        return await self._connections.fetch(_SQL[name], *args)

    async def _fetch_soon(self, name: str, *args: Any) -> list[Any]:
        """StorageUnavailable if there is no answer within seconds; it may have been executed all the same."""
        await self._check()
        return await self._connections.fetch(_SQL[name], *args, patience=connections.ANSWER_SECONDS)

    # -- accept --------------------------------------------------------------------------------------------------------

    async def job_insert_many(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        # Statements with several unique keys could wait for each other in a circle: only jobs without one share.
        if len(jobs) == 1 and jobs[0].unique_key is None:
            return await self._gathering.insert(jobs)
        return await self._insert_now(jobs) if jobs else []

    async def _insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        await self._check()
        try:
            return self.inserted_from_rows(jobs, await self._insert(jobs))
        except StorageError as error:
            if not breaks_constraint(error, "jobs_pkey"):
                raise
        # The same call again: its first answer was lost on the way.
        known = await self._fetch("job_inserted", [job.id for job in jobs])
        here = {row[0] for row in known} | {insert.scope(row[3], row[4]) for row in known if row[4] is not None}
        missing = [job for job in jobs if job.id not in here and insert.scope(job.tenant, job.unique_key) not in here]
        return self.inserted_from_rows(jobs, [*known, *(await self._insert(missing) if missing else [])])

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Any]:
        statement = self.insert_statement(jobs)
        return await self._connections.fetch(statement.sql, statement.parameter)

    def insert_statement(self, jobs: Sequence[NewJob]) -> CallerStatement:
        return insert.statement_for(jobs, self._clock.now())

    def inserted_from_rows(self, jobs: Sequence[NewJob], rows: Sequence[Sequence[Any]]) -> list[Inserted]:
        return insert.inserted_from_rows(jobs, rows)

    def forget_statement(self, job_ids: Sequence[str]) -> CallerStatement:
        return CallerStatement(_SQL["job_forget"], _encode(job_ids).decode())

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
        places = [cursors.get(queue) for queue in queues]
        behind = self._beginnings.of(queues)
        now = self._clock.now()
        found = await self._fetch_soon("job_claim", worker, machine, queues, tasks, limit, places, hops, hints, behind, now)
        claim, looks = rows.claim_of(found)
        for look, began in zip(looks, behind, strict=False):  # queues after the one that filled the claim were not looked at
            self._beginnings.learn(look.queue, began, look.last, look.seconds, len(claim.jobs))
        return claim

    # -- a run speaks; fenced ------------------------------------------------------------------------------------------

    async def lease_extend_if_held(self, beats: Sequence[Beat]) -> list[Held]:
        beats = sorted(beats, key=lambda beat: beat.id)
        ids, run_ids, leases = [b.id for b in beats], [b.run_id for b in beats], [b.lease_seconds for b in beats]
        found = await self._fetch_soon("lease_extend", ids, run_ids, leases, self._clock.now())
        return [Held(str(row[0]), str(row[1]), row[2], row[3], row[4]) for row in found]

    async def lease_list(self, worker: str) -> list[Beat]:
        return [Beat(row[0], row[1], row[2]) for row in await self._fetch_soon("lease_list", worker)]

    async def job_complete_if_leased(self, completions: Sequence[Completion]) -> set[str]:
        ordered = sorted(completions, key=lambda c: c.id)  # the lock order, see lease_extend
        ids, run_ids, results = [c.id for c in ordered], [c.run_id for c in ordered], [c.result for c in ordered]
        (row,) = await self._fetch_soon("job_complete", ids, run_ids, results, self._clock.now())
        return set(map(str, row[0]))

    def complete_statement(self, completion: Completion) -> CallerStatement:
        what = {"id": completion.id, "run_id": completion.run_id, "result": completion.result, "now": self._clock.now()}
        return CallerStatement(_SQL["job_complete_one"], _encode(what).decode())

    async def job_leave_if_leased(self, departures: Sequence[Departure]) -> dict[str, State]:
        found = await self._fetch_soon("job_leave", _encode(departures).decode(), self._clock.now())
        return {str(row[0]): State(row[1]) for row in found}

    async def run_states(self, runs: Sequence[tuple[str, str]]) -> dict[str, State]:
        found = await self._fetch_soon("run_states", [job_id for job_id, _ in runs], [run_id for _, run_id in runs])
        return {str(row[0]): State(row[1]) for row in found}

    async def progress_set_if_leased(self, job_id: str, run_id: str, progress: float | None, stage: str | None) -> bool:
        return bool(await self._fetch("progress_set", job_id, run_id, progress, stage, self._clock.now()))

    async def step_save_if_leased(
        self, job_id: str, run_id: str, name: str, fingerprint: str, result: str
    ) -> StepResult | None:
        (row,) = await self._fetch("step_save", job_id, run_id, name, fingerprint, result, self._clock.now())
        return None if row[0] is None else StepResult(row[0])

    async def step_get(self, job_id: str, name: str, fingerprint: str) -> StepResult | None:
        found = await self._fetch("step_get", job_id, name, fingerprint)
        return StepResult(found[0][0]) if found else None

    # -- people act ----------------------------------------------------------------------------------------------------

    async def job_cancel(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        verdict = await self._verdict("job_cancel", job_id, by, tenant)
        if verdict not in ("cancelled", "cancelling"):
            raise cancel_conflict(job_id, verdict)
        return await self.job_get(job_id)

    async def job_retry_if_ended(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        verdict = await self._verdict("job_retry", job_id, by, tenant)
        if verdict != "queued":
            raise retry_conflict(job_id, verdict)
        return await self.job_get(job_id)

    async def _verdict(self, statement: str, job_id: str, by: str | None, tenant: str | None) -> str:
        if not is_uuid(job_id):
            return "not_found"
        (row,) = await self._fetch(statement, job_id, by, self._clock.now(), tenant)
        return str(row[0])

    # -- rescue and forget ---------------------------------------------------------------------------------------------

    async def job_reap(self, *, backoff: Backoff, deadline_grace: float, limit: int, dead: Sequence[str] = ()) -> list[Reaped]:
        bounds = limit, backoff.base, backoff.most, deadline_grace
        found = await self._fetch_soon("job_reap", *bounds, dead, self._clock.now())
        return [Reaped(**{**row, "state": State(row["state"])}) for row in found]

    async def order_heal(self) -> int:
        return int((await self._fetch("order_heal"))[0][0])

    async def prune(self, retention: Retention, *, limit: int) -> dict[str, int]:
        now = self._clock.now() or datetime.now(UTC) - timedelta(seconds=await self.clock_offset())

        def before(days: float) -> datetime:
            return now - timedelta(days=days)

        oldest = first_job_id_at(before(min(retention.finished, retention.failed)))
        ended = oldest, before(retention.finished), before(retention.failed)
        lines = await self._deleted("log_prune", before(retention.logs), limit)
        lines += await self._deleted("log_prune_of_jobs", *ended, limit - lines)
        return {
            "jobs": await self._deleted("job_prune", *ended, limit),
            "events": await self._deleted("event_prune", before(retention.events), limit),
            "logs": lines,
            "workers": await self._deleted("worker_prune", before(retention.workers), limit),
        }

    async def _deleted(self, statement: str, *args: Any) -> int:
        await self._check()
        async with self._connections.acquire() as connection:
            with self._connections.errors_translated():
                status: str = await connection.execute(_SQL[statement], *args)
            return int(status.rpartition(" ")[2])

    # -- look ----------------------------------------------------------------------------------------------------------

    async def job_get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        found = await self._fetch("job_get", job_id, tenant) if is_uuid(job_id) else []
        if not found:
            raise JobNotFound(f"There is no job {job_id}.")
        return rows.job_of(found[0])

    async def job_unserved(self, older_than: float, limit: int, *, look_at: int = 10_000) -> list[tuple[str, str, int]]:
        found = await self._fetch("job_unserved", older_than, limit, look_at, self._clock.now())
        return [(row[0], row[1], row[2]) for row in found]

    async def job_demand(self, *, enough: int, cap: int) -> list[Demand]:
        return [Demand(*row) for row in await self._fetch("job_demand", enough, cap, DEMAND_HOPS_MAX, self._clock.now())]

    async def run_list(self, job_id: str, *, tenant: str | None = None) -> list[Run]:
        job = await self.job_get(job_id, tenant=tenant)
        older = [rows.run_of(row) for row in await self._fetch("run_list", job_id)]
        newest = current_run_of(job)
        return [newest, *(run for run in older if run.run_no != newest.run_no)] if newest else older

    # -- workers -------------------------------------------------------------------------------------------------------

    async def worker_save(self, worker: WorkerRow) -> None:
        await self._fetch_soon("worker_save", *rows.of_worker(worker), self._has_session(worker.id), self._clock.now())

    async def worker_seen(self, worker: WorkerRow) -> float | None:
        values = *rows.of_worker(worker), self._has_session(worker.id), self._clock.now()
        ((seconds,),) = await self._fetch_soon("worker_seen", *values)
        return None if seconds is None else float(seconds)

    def _has_session(self, worker_id: str) -> bool:
        return any(listener.worker == worker_id and listener.has_session for listener in self._listeners)

    async def worker_remove(self, worker_id: str) -> None:
        await self._fetch_soon("worker_remove", worker_id)

    async def worker_list(self) -> list[WorkerRow]:
        return [rows.worker_of(row) for row in await self._fetch_soon("worker_list")]

    # -- wake-ups ------------------------------------------------------------------------------------------------------

    async def wake(self) -> None:
        await self._fetch("wake")

    async def listen(self, wake: Wake, *, logs: bool = False, worker: str | None = None) -> Callable[[], Awaitable[None]]:
        listener = Listener(self._connections, wake, logs, worker)
        self._listeners.append(listener)
        await listener.first_try.wait()

        async def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            await listener.close()

        return stop

    @property
    def pooled(self) -> bool:
        return bool(self._connections.pooled)

    @property
    def listening(self) -> bool:
        return any(listener.connected for listener in self._listeners)


def _now_for(statement: str, clock: DatabaseClock) -> tuple[datetime | None, ...]:
    return (clock.now(),) if statement in shared.TIMED else ()
