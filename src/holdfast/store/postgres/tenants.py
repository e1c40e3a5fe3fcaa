"""Tenants, plans and queues on PostgreSQL: part of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.job import Job
from holdfast.store.named_sql import load_statements, qualified_for_postgres
from holdfast.store.protocol import UNCHANGED, CallerStatement, Depth, Plan, Queue, Tenant, Unchanged

STATEMENTS = {name: qualified_for_postgres(sql) for name, sql in load_statements("holdfast.store.postgres").items()}


class TenantVerbs:
    _clock: DatabaseClock

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        raise NotImplementedError

    async def job_get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        raise NotImplementedError

    async def tenant_set(
        self,
        tenant: str,
        *,
        plan: str | Unchanged,
        max_running: int | Unchanged | None,
        queue_depth: int | Unchanged | None,
        timezone: str | Unchanged = UNCHANGED,
        by: str | None,
    ) -> Tenant:
        running, depth = _mentioned(max_running), _mentioned(queue_depth)
        texts = (None if plan is UNCHANGED else plan, None if timezone is UNCHANGED else timezone)
        await self._fetch("tenant_set", tenant, texts[0], *running, *depth, by, self._clock.now(), texts[1])
        return await self.tenant_get(tenant)

    async def tenant_get(self, tenant: str) -> Tenant:
        return Tenant(**(await self._fetch("tenant_get", tenant))[0])

    async def tenant_list(self, *, after: str | None, limit: int) -> list[Tenant]:
        return [Tenant(**row) for row in await self._fetch("tenant_list", after, limit)]

    async def tenant_pause(self, tenant: str, *, paused: bool, by: str | None) -> Tenant:
        await self._fetch("tenant_pause", tenant, paused, by, self._clock.now())
        return await self.tenant_get(tenant)

    def depths_statement(self, tenants: Sequence[str]) -> CallerStatement:
        return CallerStatement(STATEMENTS["tenant_depths"], msgspec.json.encode(tenants).decode())

    async def tenant_depths(self, tenants: Sequence[str]) -> dict[str, Depth]:
        found = await self._fetch("tenant_depths", msgspec.json.encode(tenants).decode())
        return {row[0]: Depth(row[1], row[2]) for row in found}

    async def tenant_running(self, tenant: str, limit: int) -> list[Job[Any]]:
        return [await self.job_get(row[0]) for row in await self._fetch("tenant_running", tenant, limit)]

    async def plan_set(self, plan: Plan, *, by: str | None) -> Plan:
        await self._fetch("plan_set", plan.name, plan.max_running, plan.queue_depth, plan.weight, by, self._clock.now())
        return plan

    async def plan_list(self) -> list[Plan]:
        return [Plan(*row) for row in await self._fetch("plan_list")]

    async def queue_set(self, queue: str, *, max_running: int | None, by: str | None) -> Queue:
        await self._fetch("queue_set", queue, max_running, by, self._clock.now())
        return await self.queue_get(queue)

    async def queue_get(self, queue: str) -> Queue:
        return Queue(**(await self._fetch("queue_get", queue))[0])

    async def queue_list(self) -> list[Queue]:
        return [Queue(**row) for row in await self._fetch("queue_list")]

    async def queue_pause(self, queue: str, *, paused: bool, by: str | None) -> Queue:
        await self._fetch("queue_pause", queue, paused, by, self._clock.now())
        return await self.queue_get(queue)

    async def order_ahead(self, job_id: str) -> Job[Any] | None:
        found = await self._fetch("order_ahead", job_id)
        return await self.job_get(found[0][0]) if found else None


def _mentioned(number: int | Unchanged | None) -> tuple[bool, int | None]:
    return (False, None) if isinstance(number, Unchanged) else (True, number)
