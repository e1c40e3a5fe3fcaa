"""Two differently named tables of a team, on both databases, seen with the team's eyes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from holdfast import Holdfast
from holdfast.adopt import AdoptedTable

JOBS = AdoptedTable("jobs")
ASR = AdoptedTable(
    "asr jobs",
    columns={"id": "uid", "status": "state", "locked_by": "owner", "lease_expires_at": "lease_until", "stage": "phase"},
    words={"queued": "PENDING", "running": "BUSY", "completed": "DONE", "failed": "BROKEN"},
    events="asr_events",
)
BOTH = {"jobs": JOBS, "asr jobs": ASR}

CREATE = {
    "sqlite": [
        """CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload TEXT, status TEXT NOT NULL DEFAULT 'queued', locked_by TEXT,
           lease_expires_at REAL, last_heartbeat_at REAL, attempt_count INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER)""",
        """CREATE TABLE "asr jobs" (uid TEXT PRIMARY KEY, state TEXT NOT NULL DEFAULT 'PENDING', owner TEXT,
           lease_until DATETIME, phase TEXT)""",
        "CREATE TABLE asr_events (job_id TEXT NOT NULL, data TEXT NOT NULL)",
    ],
    "postgres": [
        """CREATE TABLE jobs (id bigint PRIMARY KEY, payload text, status text NOT NULL DEFAULT 'queued', locked_by text,
           lease_expires_at timestamptz, last_heartbeat_at timestamptz, attempt_count integer NOT NULL DEFAULT 0,
           max_attempts integer)""",
        "CREATE TYPE asr_state AS ENUM ('PENDING', 'BUSY', 'DONE', 'BROKEN')",
        """CREATE TABLE "asr jobs" (uid uuid PRIMARY KEY, state asr_state NOT NULL DEFAULT 'PENDING', owner text,
           lease_until timestamp, phase varchar(20))""",
        "CREATE TABLE asr_events (job_id uuid NOT NULL, data json NOT NULL)",
    ],
}
IDS = {"jobs": [1, 2, 3], "asr jobs": [f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2, 3)]}


class Team:
    """One of the two tables, seen with the team's eyes."""

    def __init__(self, hf: Holdfast, adopted: AdoptedTable) -> None:
        self.hf, self.adopted = hf, adopted
        self.ids = IDS[adopted.table]
        self.work = hf.adopted(adopted.table)

    async def add(self, *ids: Any, **columns: Any) -> None:
        id_column = self.adopted.column("id")
        async with self.hf.transaction() as tx:
            for one in ids:
                names = ", ".join(f'"{self.adopted.column(name)}"' for name in (id_column, *columns))
                marks = ", ".join(f"${number}" for number in range(1, len(columns) + 2))
                await tx.execute(f'INSERT INTO "{self.adopted.table}" ({names}) VALUES ({marks})', one, *columns.values())

    async def rows(self) -> dict[Any, dict[str, Any]]:
        """By id, with our names for columns and words."""
        ours = {self.adopted.column(name): name for name in ("id", "status", "locked_by", "lease_expires_at", "stage")}
        words = {self.adopted.word(word): word for word in ("queued", "running", "completed", "failed")}
        async with self.hf.transaction() as tx:
            found = await tx.fetch(f'SELECT * FROM "{self.adopted.table}"')
        rows = [{ours.get(name, name): value for name, value in row.items()} for row in found]
        return {plain(row["id"]): {**row, "status": words[row["status"]]} for row in rows}

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        async with self.hf.transaction() as tx:
            found = await tx.fetch(f"SELECT job_id, data FROM {self.adopted.events}")
        return [(str(row["job_id"]), json.loads(row["data"])) for row in found]

    async def claim_all(self, lease: float = 10.0) -> None:
        assert await self.work.claim("w1", limit=10, lease=lease)


def plain(value: Any) -> Any:
    return value if isinstance(value, int | str) else str(value)


def moment(value: Any) -> float:
    """Whatever a database keeps a time as."""
    if isinstance(value, str):
        return datetime.fromisoformat(value + "+00:00").timestamp()
    if isinstance(value, datetime):
        return (value if value.tzinfo else datetime.fromisoformat(f"{value.isoformat()}+00:00")).timestamp()
    return float(value)


async def make_tables(hf: Holdfast) -> None:
    async with hf.transaction() as tx:
        for sql in CREATE[hf.store.name]:
            await tx.execute(sql)
