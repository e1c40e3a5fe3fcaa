"""Where a round of chaos has its database: on a small disk that can be filled, where root may mount one."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.support.postgres import OwnServer
from tools.small_disk import SmallDisk, small_disk

DISK_MB = 48


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, OwnServer | None, SmallDisk | None]]:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder, DISK_MB))
        if disk is None:
            print("  without a full disk: only root may mount a small one")
        if kind == "sqlite":
            place = folder if disk is None else disk.folder
            if disk is not None:
                stack.callback(lambda: [shutil.copy(path, folder) for path in place.glob("chaos.db*")])
            yield f"sqlite:///{place}/chaos.db", None, disk
            return
        server = OwnServer()
        stack.callback(server.remove)
        yield server.start().url, server, disk


def put_logs_on(disk: SmallDisk, server: OwnServer) -> None:
    """Into a tablespace there: elsewhere a full disk is a crash of PostgreSQL, which is a trouble of its own."""
    place = disk.folder / "logs"
    place.mkdir()
    disk.folder.parent.chmod(0o755)  # root's server runs as a user of its own
    with psycopg.connect(server.url, autocommit=True) as admin:
        (data,) = admin.execute("SHOW data_directory").fetchone() or ("",)
        owner = Path(str(data)).stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        admin.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        admin.execute("ALTER TABLE holdfast.logs SET TABLESPACE small")
