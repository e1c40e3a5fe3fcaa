"""Tenants, plans and queues on SQLite: part of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.job import Job
from holdfast.store.protocol import UNCHANGED, CallerStatement, Depth, Plan, Queue, Tenant, Unchanged
from holdfast.store.sqlite import look
from holdfast.store.sqlite.rows import time_of
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json

T = TypeVar("T")


class TenantVerbs:
    async def _read(self, operation: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def _write(self, operation: Callable[[Session], T]) -> T:
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
        def operation(session: Session) -> Tenant:
            numbers = {**_mentioned("max_running", max_running), **_mentioned("queue_depth", queue_depth)}
            texts = {"plan": None if plan is UNCHANGED else plan, "timezone": None if timezone is UNCHANGED else timezone}
            (said,) = session.all("tenant_set", tenant=tenant, **texts, **numbers)
            _record(session, "tenant.changed", by, tenant, dict(said))
            return _tenant(session, tenant)

        return await self._write(operation)

    async def tenant_get(self, tenant: str) -> Tenant:
        return await self._read(lambda session: _tenant(session, tenant))

    async def tenant_list(self, *, after: str | None, limit: int) -> list[Tenant]:
        return await self._read(
            lambda session: [_tenant_of(row) for row in session.all("tenant_list", after=after, limit=limit)]
        )

    async def tenant_pause(self, tenant: str, *, paused: bool, by: str | None) -> Tenant:
        def operation(session: Session) -> Tenant:
            session.run("tenant_pause", tenant=tenant, paused=paused, by=by)
            _record(session, "tenant.paused" if paused else "tenant.resumed", by, tenant, {})
            return _tenant(session, tenant)

        return await self._write(operation)

    def depths_statement(self, tenants: Sequence[str]) -> CallerStatement:
        return CallerStatement(STATEMENTS["tenant_depths"], as_json(tenants))

    async def tenant_depths(self, tenants: Sequence[str]) -> dict[str, Depth]:
        return await self._read(
            lambda session: {
                row["id"]: Depth(row["queued"], row["most"])
                for row in session.execute(STATEMENTS["tenant_depths"], {"1": as_json(tenants)})
            }
        )

    async def tenant_running(self, tenant: str, limit: int) -> list[Job[Any]]:
        return await self._read(
            lambda session: [look.job(session, row["id"]) for row in session.all("tenant_running", tenant=tenant, limit=limit)]
        )

    async def plan_set(self, plan: Plan, *, by: str | None) -> Plan:
        def operation(session: Session) -> Plan:
            numbers = {"max_running": plan.max_running, "queue_depth": plan.queue_depth, "weight": plan.weight}
            session.run("plan_set", name=plan.name, **numbers)
            _record(session, "plan.changed", by, None, {"plan": plan.name, **numbers})
            return plan

        return await self._write(operation)

    async def plan_list(self) -> list[Plan]:
        return await self._read(lambda session: [Plan(*row) for row in session.all("plan_list")])

    async def queue_set(self, queue: str, *, max_running: int | None, by: str | None) -> Queue:
        def operation(session: Session) -> Queue:
            session.run("queue_set", queue=queue, max_running=max_running)
            _record(session, "queue.changed", by, None, {"queue": queue, "max_running": max_running})
            return _queue(session, queue)

        return await self._write(operation)

    async def queue_get(self, queue: str) -> Queue:
        return await self._read(lambda session: _queue(session, queue))

    async def queue_list(self) -> list[Queue]:
        return await self._read(lambda session: [_queue_of(row) for row in session.all("queue_list")])

    async def queue_pause(self, queue: str, *, paused: bool, by: str | None) -> Queue:
        def operation(session: Session) -> Queue:
            session.run("queue_pause", queue=queue, paused=paused, by=by)
            _record(session, "queue.paused" if paused else "queue.resumed", by, None, {"queue": queue})
            return _queue(session, queue)

        return await self._write(operation)

    async def order_ahead(self, job_id: str) -> Job[Any] | None:
        def operation(session: Session) -> Job[Any] | None:
            row = session.one("order_ahead", id=job_id)
            return None if row is None else look.job(session, row["id"])

        return await self._read(operation)


def _mentioned(name: str, number: int | Unchanged | None) -> dict[str, Any]:
    mentioned = not isinstance(number, Unchanged)
    return {f"set_{name}": mentioned, name: number if mentioned else None}


def _record(session: Session, event: str, by: str | None, tenant: str | None, said: dict[str, Any]) -> None:
    session.run("event_insert", job_id=None, tenant=tenant, type=event, actor=by, data=as_json(said))
    session.wakes.add("")


def _tenant(session: Session, tenant: str) -> Tenant:
    return _tenant_of(session.all("tenant_get", tenant=tenant)[0])


def _tenant_of(row: Any) -> Tenant:
    return Tenant(**{**dict(row), "paused_at": time_of(row["paused_at"])})


def _queue(session: Session, queue: str) -> Queue:
    return _queue_of(session.all("queue_get", queue=queue)[0])


def _queue_of(row: Any) -> Queue:
    return Queue(**{**dict(row), "paused_at": time_of(row["paused_at"])})
