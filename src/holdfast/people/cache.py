"""A small memory for what is asked at every request: it forgets after a moment, so that a revocation holds soon."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

T = TypeVar("T")

ENTRIES_MAX = 10_000


class ShortCache(Generic[T]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._entries: dict[str, tuple[float, T]] = {}

    def get(self, name: str) -> T | None:
        entry = self._entries.get(name)
        if entry is None or time.monotonic() >= entry[0]:
            return None
        return entry[1]

    def put(self, name: str, value: T, seconds_left: float | None = None) -> None:
        """Never for longer than what is remembered holds by itself."""
        if len(self._entries) >= ENTRIES_MAX:
            self._entries.clear()
        life = self.seconds if seconds_left is None else min(self.seconds, seconds_left)
        self._entries[name] = (time.monotonic() + life, value)

    def forget(self, name: str) -> None:
        self._entries.pop(name, None)

    def clear(self) -> None:
        self._entries.clear()
