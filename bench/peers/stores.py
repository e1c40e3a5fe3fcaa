"""Where the queues keep their jobs: one durable PostgreSQL for all, a Redis without persistence, SQLite files."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from bench.peers.environments import Unusable
from bench.places import name_of
from tests.support.postgres import OwnServer


class Store(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def fresh(self) -> str:
        """The URL of an empty place."""
        ...

    async def drop(self, url: str) -> None: ...


class Postgres:
    """fsync and synchronous_commit are on, autovacuum is as PostgreSQL and each queue set it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        # The name of the database is in front of every line of the log: the idle metric counts the statements of one there.
        self._server = OwnServer(shared_buffers="256MB", max_wal_size="4GB", log_line_prefix="%d=").start()
        self.version = str(await self.ask(self._server.url, "SHOW server_version"))

    async def close(self) -> None:
        self._server.remove()

    async def fresh(self) -> str:
        return await self.copy_of(self._server.url_of("template1"))

    async def copy_of(self, url: str) -> str:
        name = f"bench_{next(self._numbers)}"
        await self.ask(self._server.url, f"CREATE DATABASE {name} TEMPLATE {name_of(url)} STRATEGY file_copy")
        return self._server.url_of(name)

    async def drop(self, url: str) -> None:
        await self.ask(self._server.url, f"DROP DATABASE {name_of(url)} WITH (FORCE)")

    async def ask(self, url: str, sql: str, *values: Any) -> Any:
        connection: Any = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql, *values)
        finally:
            await connection.close()

    async def settle(self, url: str) -> None:
        await self.ask(url, "VACUUM (ANALYZE)")
        await self.ask(url, "CHECKPOINT")

    async def multiply(self, url: str, tables: dict[str, dict[str, str | None]], jobs: int) -> None:
        """The one job that the queue itself enqueued, so many times over; given are columns that differ, None: its default."""
        for table, differing in tables.items():
            await self._multiply(url, table, differing, jobs)

    async def _multiply(self, url: str, table: str, differing: dict[str, str | None], jobs: int) -> None:
        connection: Any = await asyncpg.connect(url)
        try:
            rows = await connection.fetch(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped "
                "AND attgenerated = ''",
                table,
            )
            wanted = {row[0]: differing.get(row[0], f'r."{row[0]}"') for row in rows}
            taken = {column: expression for column, expression in wanted.items() if expression is not None}
            columns = ", ".join(f'"{column}"' for column in taken)
            await connection.execute(
                f"INSERT INTO {table} ({columns}) SELECT {', '.join(taken.values())} "
                f"FROM {table} r, generate_series(1, {jobs - 1}) n",
                timeout=600,
            )
        finally:
            await connection.close()

    async def dead_rows(self, url: str) -> int:
        return int(await self.ask(url, "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"))

    async def log_statements(self, url: str) -> None:
        """Of connections that are made from now on."""
        await self.ask(self._server.url, f"ALTER DATABASE {name_of(url)} SET log_statement = 'all'")

    def statements_logged(self, url: str) -> int:
        starts = tuple(f"{name_of(url)}=LOG:  {what}" for what in ("execute", "statement"))
        return sum(line.startswith(starts) for line in self._server.log.splitlines())

    async def crash_and_start(self) -> None:
        await asyncio.to_thread(self._server.stop, "immediate")
        await asyncio.to_thread(self._server.start)


class Redis:
    async def open(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise Unusable("needs redis-server, which is not installed; on Debian: apt-get install redis-server")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        command = [program, "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, start_new_session=True)
        await self._until_it_answers()

    async def close(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def fresh(self) -> str:
        await self._say("FLUSHALL")
        return f"redis://127.0.0.1:{self._port}/0"

    async def drop(self, url: str) -> None:
        await self._say("FLUSHALL")

    async def _until_it_answers(self) -> None:
        for _ in range(100):
            try:
                return await self._say("PING")
            except ConnectionError:
                await asyncio.sleep(0.05)
        raise Unusable("redis-server did not start")

    async def _say(self, command: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"{command}\r\n".encode())
        await reader.readline()
        writer.close()


class SqliteFiles:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def open(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-peers-"))

    async def close(self) -> None:
        shutil.rmtree(self._folder)

    async def fresh(self) -> str:
        return str(self._folder / f"{next(self._numbers)}.db")

    async def drop(self, url: str) -> None:
        for path in self._folder.glob(f"{Path(url).name}*"):
            path.unlink()
