"""Where things are measured: a private durable PostgreSQL out of a wheel, and SQLite files in a folder of their own."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from bench.app import make_app
from bench.floor import BATCH, Floor, PostgresFloor, SqliteFloor
from tests.support.postgres import OwnServer


class Place(Protocol):
    name: str

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def fresh(self) -> str:
        """The URL of a new database with the schema in it."""
        ...

    async def copy_of(self, url: str) -> str:
        """A copy of a database that nobody uses."""
        ...

    async def settle(self, url: str) -> None:
        """Bring a database that was just filled to rest, before it is copied or drained."""
        ...

    def floor(self, url: str) -> Floor: ...

    async def unfinished(self, url: str) -> int: ...

    async def first_start(self, url: str) -> float:
        """When the first job was claimed, in unix seconds."""
        ...


class PostgresPlace:
    name = "postgres"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        # Who said it is in front of every line of the log: the idle metric counts the statements of one database there.
        self.server = OwnServer(shared_buffers="256MB", max_wal_size="4GB", log_line_prefix="%d/%a=").start()
        self.admin: Any = await asyncpg.connect(self.server.url)
        self._postmaster = _parent_of(await self.admin.fetchval("SELECT pg_backend_pid()"))
        self._template = await self._create("template0")
        app = make_app(self._template)
        await app.migrate()
        await app.aclose()

    async def close(self) -> None:
        await self.admin.close()
        self.server.remove()

    async def fresh(self) -> str:
        return await self._create(name_of(self._template))

    async def copy_of(self, url: str) -> str:
        return await self._create(name_of(url))

    async def _create(self, template: str) -> str:
        name = f"bench_{next(self._numbers)}"
        await self.admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.server.url_of(name)

    async def settle(self, url: str) -> None:
        await self._ask(url, "VACUUM (ANALYZE)")
        await self.admin.execute("CHECKPOINT")

    def floor(self, url: str) -> Floor:
        return PostgresFloor(url)

    async def unfinished(self, url: str) -> int:
        return int(await self._ask(url, "SELECT count(*) FROM holdfast.jobs WHERE state IN ('queued', 'running')"))

    async def first_start(self, url: str) -> float:
        return float(await self._ask(url, "SELECT extract(epoch FROM min(started_at))::double precision FROM holdfast.jobs"))

    async def _ask(self, url: str, sql: str) -> Any:
        connection: Any = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    async def counters(self, url: str) -> dict[str, int]:
        """Row versions and transactions so far; the figures are complete once all backends of the database are gone."""
        row = await self._row(url)
        transactions = await self.admin.fetchval("SELECT xact_commit FROM pg_stat_database WHERE datname = $1", name_of(url))
        return {**row, "transactions": transactions}

    async def _row(self, url: str) -> dict[str, int]:
        connection: Any = await asyncpg.connect(url)
        try:
            found = await connection.fetchrow(
                "SELECT sum(n_tup_ins)::bigint AS inserted, sum(n_tup_upd)::bigint AS updated, "
                "sum(n_tup_hot_upd)::bigint AS hot, sum(n_tup_del)::bigint AS deleted FROM pg_stat_user_tables"
            )
            return dict(found)
        finally:
            await connection.close()

    def cpu_seconds(self) -> float:
        """Of the whole server; that of backends which have ended is in their parent's account."""
        pid = self._postmaster
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return cpu_seconds(pid, with_ended_children=True) + sum(cpu_seconds(int(child)) for child in children)


class SqlitePlace:
    name = "sqlite"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))

    async def close(self) -> None:
        shutil.rmtree(self._folder)

    async def fresh(self) -> str:
        url = self._next()
        app = make_app(url)
        await app.migrate()
        await app.aclose()
        return url

    async def copy_of(self, url: str) -> str:
        copy = self._next()
        shutil.copyfile(path_of(url), path_of(copy))
        os.sync()  # otherwise the first commits pay for writing out the copy
        return copy

    def _next(self) -> str:
        return f"sqlite:///{self._folder}/{next(self._numbers)}.db"

    async def settle(self, url: str) -> None:
        connection = sqlite3.connect(path_of(url))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()

    def floor(self, url: str) -> Floor:
        return SqliteFloor(path_of(url))

    async def unfinished(self, url: str) -> int:
        return int(self._ask(url, "SELECT count(*) FROM holdfast_jobs WHERE state IN ('queued', 'running')"))

    async def first_start(self, url: str) -> float:
        return float(self._ask(url, "SELECT min(started_at) FROM holdfast_jobs"))

    def _ask(self, url: str, sql: str) -> Any:
        connection = sqlite3.connect(path_of(url))
        try:
            return connection.execute(sql).fetchone()[0]
        finally:
            connection.close()


def name_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / os.sysconf("SC_CLK_TCK")


def _parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """From the third field on, the state; nothing once the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return []


async def filled(place: Place, jobs: int) -> str:
    """A database with a backlog of no-op jobs, at rest."""
    url = await place.fresh()
    app = make_app(url)
    noop = app.tasks["noop"]
    for start in range(0, jobs, BATCH):
        await app.enqueue_many([noop.job(number) for number in range(start, min(start + BATCH, jobs))])
    await app.aclose()
    await place.settle(url)
    return url
