"""An application on top of Holdfast joins by `hf.extend(...)`; extraction is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import ConfigError
from holdfast.store.named_sql import load_migrations, load_statements
from holdfast.task import Task


class Extension:
    def __init__(
        self,
        name: str,
        *,
        migrations: str | None = None,
        tasks: Sequence[Task[..., Any]] = (),
        routers: Sequence[Any] = (),  # or functions that make them, so that a worker need not import FastAPI
        pages: Sequence[Any] = (),
        commands: Sequence[Any] = (),
        application: Any = None,
    ) -> None:
        self.name = name
        self.tasks = tuple(tasks)
        self.routers = tuple(routers)
        self.pages = tuple(pages)
        self.commands = tuple(commands)
        self.application = application
        """What its routers and pages work with."""
        self._migrations = migrations
        self._statements: dict[str, dict[str, str]] = {}

    def migrations_for(self, store_name: str) -> list[tuple[int, str, str]]:
        """`migrations` names a package with the folders sqlite/migrations and postgres/migrations of NNNN_name.sql files."""
        return load_migrations(f"{self._migrations}.{store_name}") if self._migrations else []

    def statement(self, store_name: str, name: str) -> str:
        """The SQL below `-- name: …` in a .sql file beside the `migrations` folder of this store; for `tx.fetch`."""
        if store_name not in self._statements:
            self._statements[store_name] = load_statements(f"{self._migrations}.{store_name}") if self._migrations else {}
        try:
            return self._statements[store_name][name]
        except KeyError:
            raise ConfigError(f"The extension {self.name} has no statement {name} for {store_name}.") from None
