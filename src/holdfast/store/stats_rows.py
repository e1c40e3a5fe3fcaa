"""Rows of statistics as what they mean: the same on both stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.store.protocol import QueueLoad, Tally


def load_of(rows: Iterable[Any]) -> list[QueueLoad]:
    """Rows are (kind, queue, n, stuck, slow, oldest)."""
    queues: dict[str, QueueLoad] = {}
    for kind, queue, n, stuck, slow, oldest in rows:
        if not n:
            continue
        load = queues.setdefault(queue, QueueLoad(queue=queue))
        setattr(load, kind, getattr(load, kind) + n)
        load.stuck += stuck
        load.slow += slow
        if kind == "waiting":
            load.oldest_wait_seconds = max(load.oldest_wait_seconds or 0.0, oldest)
    return [queues[name] for name in sorted(queues)]


def recent_of(minutes: int, rows: Sequence[Any]) -> tuple[float, list[Tally]]:
    """Rows are (name, queue, label, n, seconds covered)."""
    covered = rows[0][4] if rows else minutes * 60.0
    return covered, [Tally(*tuple(row)[:4]) for row in rows]
