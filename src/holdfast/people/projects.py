"""Projects: parts of an organization's work, by name. A job may carry one as `project=`."""

from __future__ import annotations

import reprlib
from datetime import datetime

import msgspec

from holdfast.errors import Conflict, NotFound
from holdfast.people.common import Platform, checked_limit, checked_name, checked_name_or_none, note, within
from holdfast.store.protocol import Transaction


class Project(msgspec.Struct, kw_only=True, frozen=True):
    tenant: str
    id: str
    name: str
    created_at: datetime
    created_by: str | None


class Projects:
    """`hf.projects`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def create(
        self,
        tenant: str,
        project_id: str,
        *,
        name: str | None = None,
        by: str | None = None,
        tx: Transaction | None = None,
    ) -> Project:
        which, by = _which(tenant, project_id), checked_name_or_none("by", by)
        name = checked_name("name", name if name is not None else project_id)
        async with within(self._platform, tx) as inside:
            made = await inside.shared("project_insert", *which, name, by)
            if not made:
                raise Conflict(f"{tenant} has a project {project_id} already; choose another id.", "project_exists")
            await note(inside, tenant, "project.created", by, project=project_id, name=name)
        return Project(**made[0])

    async def list(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Project]:
        """By id; `cursor` is that of the last one seen."""
        checked_name("tenant", tenant)
        checked_name_or_none("cursor", cursor)
        found = await self._platform.store.shared("project_list", tenant, cursor, checked_limit(limit))
        return [Project(**row) for row in found]

    async def get(self, tenant: str, project_id: str) -> Project:
        found = await self._platform.store.shared("project_get", *_which(tenant, project_id))
        if not found:
            raise _missing(tenant, project_id)
        return Project(**found[0])

    async def rename(self, tenant: str, project_id: str, name: str, *, by: str | None = None) -> Project:
        which, name, by = _which(tenant, project_id), checked_name("name", name), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            renamed = await tx.shared("project_rename", *which, name)
            if not renamed:
                raise _missing(tenant, project_id)
            await note(tx, tenant, "project.renamed", by, project=project_id, name=name)
        return Project(**renamed[0])

    async def remove(self, tenant: str, project_id: str, *, by: str | None = None) -> Project:
        """Its jobs stay as they are."""
        which, by = _which(tenant, project_id), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            removed = await tx.shared("project_delete", *which)
            if not removed:
                raise _missing(tenant, project_id)
            await note(tx, tenant, "project.removed", by, project=project_id)
        return Project(**removed[0])


def _which(tenant: str, project_id: str) -> tuple[str, str]:
    return checked_name("tenant", tenant), checked_name("id", project_id)


def _missing(tenant: str, project_id: str) -> NotFound:
    return NotFound(f"{tenant} has no project {reprlib.repr(project_id)}.")
