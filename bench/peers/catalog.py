"""Which queues are measured and what has to be installed for each."""

from __future__ import annotations

import dataclasses
from typing import Literal

Store = Literal["postgres", "redis", "sqlite"]


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    store: Store
    packages: tuple[str, ...] = ()
    """For pip; none means the environment that runs the benchmark."""
    python: tuple[int, int] = (3, 11)

    @property
    def title(self) -> str:
        if self.name == "holdfast":
            return "Holdfast"
        return self.name if self.store == "postgres" else f"{self.name} ({self.store})"


PEERS = (
    Peer("holdfast", "postgres"),
    Peer("pgqueuer", "postgres", ("pgqueuer", "asyncpg", "uvloop")),
    Peer("chancy", "postgres", ("chancy", "psycopg[binary]", "uvloop")),
    Peer("oban", "postgres", ("oban", "psycopg[binary]", "uvloop"), python=(3, 12)),
    Peer("saq", "postgres", ("saq[postgres]", "psycopg[binary]", "uvloop")),
    Peer("procrastinate", "postgres", ("procrastinate", "psycopg[binary]", "uvloop")),
    Peer("dbos", "postgres", ("dbos", "psycopg[binary]", "uvloop")),
    Peer("celery", "redis", ("celery[redis]",)),
    Peer("dramatiq", "redis", ("dramatiq[redis]",)),
    Peer("arq", "redis", ("arq", "uvloop")),
    Peer("huey", "sqlite", ("huey",)),
)

NEVER_MEASURED = {"absurd": "its package for Python comes without the SQL that it needs"}
