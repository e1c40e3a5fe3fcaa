"""How a connection is opened, and what SQLite's errors mean to a caller."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from holdfast.errors import ConfigError, HoldfastError, NotMigrated, NotOurDatabase, StorageError, StorageUnavailable

MEMORY = ":memory:"
BUSY_SECONDS = 10.0
OLDEST_SQLITE = (3, 38, 0)

REFUSALS = (sqlite3.Error, MemoryError)
"""Python raises the second where SQLite says SQLITE_NOMEM."""
_SENTENCES = {
    sqlite3.SQLITE_BUSY: "has been locked by another writer for 10 seconds; end its transaction and try again.",
    sqlite3.SQLITE_LOCKED: "has been locked by another writer for 10 seconds; end its transaction and try again.",
    sqlite3.SQLITE_PROTOCOL: "could not be locked; check that its folder is not on a network file system.",
    sqlite3.SQLITE_READONLY: "may not be written; give this user write access to the file and its folder.",
    sqlite3.SQLITE_PERM: "may not be opened; give this user access to the file and its folder.",
    sqlite3.SQLITE_AUTH: "may not be opened; give this user access to the file and its folder.",
    sqlite3.SQLITE_IOERR: "cannot be read or written (disk I/O error); check the disk.",
    sqlite3.SQLITE_FULL: "cannot grow because its disk is full; free some space.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and that this user may write to it.",
    sqlite3.SQLITE_NOMEM: "could not be used because this process has no memory left; give it more, or less to do.",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup.",
}


def require_new_enough_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with SQLite 3.38 or newer, or PostgreSQL.")


def open_connection(path: str, *, create: bool = False, read_only: bool = False) -> sqlite3.Connection:
    """Opened in one thread, closed perhaps in another, but never used by two at once."""
    target = path if path == MEMORY else f"file:{quote(os.path.abspath(path))}?mode={'rwc' if create else 'rw'}"
    connection = sqlite3.connect(
        target, uri=path != MEMORY, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("holdfast_says", 2, _says, deterministic=True)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = FULL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        elif path != MEMORY:
            _use_write_ahead_log(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _says(text: object, search: str) -> bool:
    """SQLite's own lower() knows only the letters of ASCII."""
    return text is not None and search.lower() in str(text).lower()


def _use_write_ahead_log(connection: sqlite3.Connection, path: str) -> None:
    give_up_at = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # The change of mode does not wait for locks by itself: two processes that make the file at once meet here.
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(0.02)
    if mode != "wal":
        raise StorageUnavailable(f"The database {path} cannot use a write-ahead log; put it on a local file system.")


def require_folder(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if path != MEMORY and not os.path.isdir(folder):
        raise StorageUnavailable(f"The folder {folder} does not exist; create it, or name another file for the database.")


@contextmanager
def errors_translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error


def translated(error: sqlite3.Error | MemoryError, path: str) -> HoldfastError:
    ours = _meaning_of(error, path)
    ours.__cause__ = error
    return ours


def _meaning_of(error: sqlite3.Error | MemoryError, path: str) -> HoldfastError:
    code = sqlite3.SQLITE_NOMEM if isinstance(error, MemoryError) else _primary_code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return NotOurDatabase(f"The file {path} is not an SQLite database; name another file.")
    if code in _SENTENCES:
        return StorageUnavailable(f"The database {path} {_SENTENCES[code]}")
    if "no such table: holdfast_" in str(error):
        return NotMigrated(f"The database {path} lacks part of Holdfast's schema; run `holdfast migrate`.")
    return StorageError(f"The database {path} refused a statement: {error}.")


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
