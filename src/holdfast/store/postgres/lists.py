"""Lists of jobs on PostgreSQL, and what is done to all that match: part of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.clock import DatabaseClock
from holdfast.job import Job, State
from holdfast.store.postgres import rows
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.tenants import STATEMENTS
from holdfast.store.protocol import CANCELLABLE, RETRYABLE, Acted, Glance, JobFilter

_ALL_TENANTS = STATEMENTS["job_matching"]
_OF_BATCH = _ALL_TENANTS.replace("$4::text IS NULL", "($4::text IS NULL OR j.tenant = $4) AND j.batch = $12")
_STATE_BY_NAME = {
    State.RUNNING: "AND j.state = 'running' AND j.locked_by IS NOT NULL",
    State.FAILED: "AND j.state = 'failed'",
    State.CANCELLED: "AND j.state = 'cancelled'",
}
"""Those that have an index of their own."""
_PARTS = {state: (condition,) for state, condition in _STATE_BY_NAME.items()} | {
    State.QUEUED: (
        "AND j.state = 'queued' AND j.hold IS NULL",
        "AND j.state = 'queued' AND j.hold = 'time'",
        "AND j.state = 'queued' AND j.hold = 'order' AND j.order_key IS NOT NULL",
    )
}
"""The same for counting: what is queued has an index for each reason to wait."""


class ListVerbs:
    _clock: DatabaseClock
    _connections: Connections

    async def _check(self) -> None:
        raise NotImplementedError

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        raise NotImplementedError

    async def job_list(self, where: JobFilter, *, cursor: str | None, limit: int) -> list[Job[Any]]:
        return [rows.job_of(row) for row in await self._matching("job_list", where, None, cursor, limit)]

    async def job_glances(self, where: JobFilter, *, limit: int) -> list[Glance]:
        return [rows.glance_of(row) for row in await self._matching("job_glances", where, None, None, limit)]

    async def job_count(self, where: JobFilter, cap: int) -> int:
        if where != JobFilter(tenant=where.tenant, state=where.state):
            return int((await self._matching("job_count", where, None, None, cap))[0][0])
        if where.tenant is not None:
            states = list(State) if where.state is None else [where.state]
            return int((await self._fetch("job_count_of_tenant", where.tenant, states, cap))[0][0])
        if where.state not in _PARTS:
            return int((await self._matching("job_count", where, None, None, cap))[0][0])
        await self._check()
        sql = [STATEMENTS["job_count_of_all"].replace("/* part */", part) for part in _PARTS[where.state]]
        return min(cap, sum([int((await self._connections.fetch(one, cap))[0][0]) for one in sql]))

    async def job_cancel_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        picked = await self._pick(where, CANCELLABLE, cursor, limit)
        done = [row[0] for row in await self._fetch("job_cancel_many", picked, by, self._clock.now())] if picked else []
        return _acted(picked, done, limit)

    async def job_retry_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        picked = await self._pick(where, RETRYABLE, cursor, limit)
        verdicts = await self._fetch("job_retry_many", picked, by, self._clock.now()) if picked else []
        return _acted(picked, [row[0] for row in verdicts if row[1] == "queued"], limit)

    async def _pick(self, where: JobFilter, allowed: Sequence[State], cursor: str | None, limit: int) -> list[str]:
        states = [state for state in allowed if where.state in (None, state)]
        return [row[0] for row in await self._matching("job_pick", where, states, cursor, limit)] if states else []

    async def _matching(
        self, head: str, where: JobFilter, states: list[State] | None, cursor: str | None, limit: int
    ) -> list[Any]:
        await self._check()
        matching = STATEMENTS["job_matching_of_tenant"] if where.tenant is not None else _ALL_TENANTS
        if where.batch is not None:
            matching = _OF_BATCH
        if states is None and where.state is not None:
            states = [where.state]
        if states is not None and len(states) == 1:
            matching = matching.replace("/* state */", _STATE_BY_NAME.get(states[0], ""))
        w = where
        return await self._connections.fetch(
            STATEMENTS[head].replace("/* matching */", matching),
            *(states, w.queue, w.task, w.tenant, w.project, w.tag, w.after, w.before, cursor, limit, w.since),
            *(() if w.batch is None else (w.batch,)),
        )


def _acted(picked: list[str], done: list[str], limit: int) -> Acted:
    return Acted(done, len(picked) - len(done), picked[-1] if len(picked) == limit else None)
