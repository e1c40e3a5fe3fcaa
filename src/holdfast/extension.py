"""An application on top of Holdfast joins by `hf.extend(...)`; extraction is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.named_sql import load_migrations
from holdfast.task import Task


class Extension:
    def __init__(
        self,
        name: str,
        *,
        migrations: str | None = None,
        tasks: Sequence[Task[..., Any]] = (),
        routers: Sequence[Any] = (),
        pages: Sequence[Any] = (),
        commands: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.tasks = tuple(tasks)
        self.routers = tuple(routers)
        self.pages = tuple(pages)
        self.commands = tuple(commands)
        self._migrations = migrations

    def migrations_for(self, store_name: str) -> list[tuple[int, str, str]]:
        """`migrations` names a package with the folders sqlite/migrations and postgres/migrations of NNNN_name.sql files."""
        return load_migrations(f"{self._migrations}.{store_name}") if self._migrations else []
