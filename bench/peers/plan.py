"""How much is measured."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Plan:
    samples: int = 3
    enqueue_seconds: float = 2.0
    drain_seconds: float = 6.0
    """A drain that takes longer is cut here; what is done until then counts."""
    latency_per_second: int = 50
    latency_seconds: float = 10.0
    backlog: int = 500_000
    backlog_part: int = 50_000
    idle_seconds: float = 30.0
    steady_per_second: int = 200
    steady_seconds: float = 120.0
    naps: int = 1_000
    disaster_at: int = 300
    """How many naps are over when a worker is killed or the database crashes."""
    rescue_seconds: float = 60.0


FULL = Plan()
QUICK = Plan(samples=1, enqueue_seconds=1.0, latency_seconds=5.0, idle_seconds=10.0, steady_seconds=20.0)
