"""The raw floor: the same work in a bare loop with the same driver. No queue on this database can be much faster."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Protocol

import asyncpg

BATCH = 1000
CONNECTIONS = 8
PAYLOAD = '{"number": 1}'


class Floor(Protocol):
    batch_ways: tuple[str, ...]
    """How many rows can be inserted at once, the fairest comparison first."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def create(self) -> None: ...
    async def insert_one(self) -> None: ...
    async def insert_many(self, rows: int, way: str) -> None: ...

    async def drain(self) -> int:
        """Claim and complete in batches until nothing is left; how many there were."""
        ...


class PostgresFloor:
    batch_ways: tuple[str, ...] = ("jsonb", "unnest", "COPY")

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._pool: Any = await asyncpg.create_pool(self._url, min_size=1, max_size=CONNECTIONS, reset=_no_reset)

    async def close(self) -> None:
        await self._pool.close()

    async def create(self) -> None:
        await self._pool.execute(
            "CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "state text NOT NULL DEFAULT 'queued', payload jsonb);"
            "CREATE INDEX floor_queued ON floor (id) WHERE state = 'queued'"
        )

    async def insert_one(self) -> None:
        await self._pool.execute("INSERT INTO floor (payload) VALUES ($1)", PAYLOAD)

    async def insert_many(self, rows: int, way: str) -> None:
        payloads = [PAYLOAD] * rows
        if way == "jsonb":
            await self._pool.execute(
                "INSERT INTO floor (payload) SELECT r.payload FROM jsonb_to_recordset($1::jsonb) AS r (payload jsonb)",
                json.dumps([{"payload": {"number": 1}}] * rows),
            )
        elif way == "unnest":
            await self._pool.execute("INSERT INTO floor (payload) SELECT p::jsonb FROM unnest($1::text[]) AS u (p)", payloads)
        else:
            await self._pool.copy_records_to_table("floor", records=((p,) for p in payloads), columns=("payload",))

    async def drain(self) -> int:
        done = 0
        async with self._pool.acquire() as connection:
            claim = await connection.prepare(
                "UPDATE floor SET state = 'running' WHERE ctid = ANY (ARRAY(SELECT ctid FROM floor WHERE state = 'queued' "
                f"ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED)) RETURNING id, payload"
            )
            complete = await connection.prepare(
                "UPDATE floor SET state = 'completed' WHERE id = ANY ($1::bigint[]) AND state = 'running' RETURNING id"
            )
            while rows := await claim.fetch():
                await complete.fetch([row[0] for row in rows])
                done += len(rows)
        return done


class SqliteFloor:
    """One connection, one statement per transaction."""

    batch_ways: tuple[str, ...] = ("json_each", "executemany")

    def __init__(self, path: str) -> None:
        self._path = path

    async def open(self) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    async def close(self) -> None:
        self._connection.close()

    async def create(self) -> None:
        self._connection.executescript(
            "CREATE TABLE floor (id INTEGER PRIMARY KEY, state TEXT NOT NULL DEFAULT 'queued', payload TEXT);"
            "CREATE INDEX floor_queued ON floor (id) WHERE state = 'queued'"
        )

    async def insert_one(self) -> None:
        self._connection.execute("INSERT INTO floor (payload) VALUES (?)", (PAYLOAD,))

    async def insert_many(self, rows: int, way: str) -> None:
        if way == "json_each":
            payloads = json.dumps([{"number": 1}] * rows)
            self._connection.execute("INSERT INTO floor (payload) SELECT value FROM json_each(?)", (payloads,))
            return
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO floor (payload) VALUES (?)", [(PAYLOAD,)] * rows)
        self._connection.execute("COMMIT")

    async def drain(self) -> int:
        done = 0
        while rows := self._transact(
            "UPDATE floor SET state = 'running' WHERE id IN (SELECT id FROM floor WHERE state = 'queued' ORDER BY id LIMIT ?) "
            "RETURNING id, payload",
            BATCH,
        ):
            ids = json.dumps([row[0] for row in rows])
            self._transact(
                "UPDATE floor SET state = 'completed' WHERE id IN (SELECT value FROM json_each(?)) AND state = 'running' "
                "RETURNING id",
                ids,
            )
            done += len(rows)
        return done

    def _transact(self, sql: str, value: Any) -> list[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute(sql, (value,)).fetchall()
        self._connection.execute("COMMIT")
        return rows


async def _no_reset(_connection: Any) -> None:
    """Holdfast's pool does without asyncpg's reset as well."""
