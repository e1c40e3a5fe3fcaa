"""A database that goes away: a store whose chosen verbs raise StorageUnavailable while it is away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from holdfast import Holdfast
from holdfast.errors import StorageUnavailable


class Outage:
    """Stands in front of a store; everything passes through but the verbs that are away."""

    def __init__(self, hf: Holdfast) -> None:
        self._store = hf.store
        self._away: set[str] = set()
        self.refused: dict[str, int] = {}
        """Verb -> how often it was asked for in vain."""
        hf.store = self  # type: ignore[assignment]

    @contextlib.contextmanager
    def of(self, *verbs: str) -> Iterator[None]:
        self._away |= set(verbs)
        try:
            yield
        finally:
            self._away -= set(verbs)

    def __getattr__(self, name: str) -> Any:
        if name not in self._away:
            return getattr(self._store, name)

        async def refuse(*args: Any, **kwargs: Any) -> Any:
            self.refused[name] = self.refused.get(name, 0) + 1
            raise StorageUnavailable("The database is away.")

        return refuse
