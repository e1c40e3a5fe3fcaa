"""Building a database file aside and swapping it in: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from holdfast.extraction.advisories.aliases import AliasGroups
from holdfast.extraction.advisories.database import FORMAT, KINDS, Database, Origin, read_only, sql
from holdfast.extraction.advisories.errors import DatabaseUnavailable, UpdateRunning
from holdfast.extraction.advisories.records import Record


@contextmanager
def replacing(path: Path) -> Iterator[Builder]:
    """The block fills the new file; it takes the place of the old one when the block ends well. One at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.new")
    with _alone(path):
        aside.unlink(missing_ok=True)  # of an update that died
        try:
            with closing(sqlite3.connect(aside.absolute().as_uri(), uri=True, isolation_level=None)) as connection:
                builder = Builder(connection)
                yield builder
                builder.finish(path)
            _to_disk(aside)
            aside.replace(path)
            _to_disk(path.parent)
        finally:
            aside.unlink(missing_ok=True)


class Builder:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._latest: dict[str, tuple[float, int, list[str]]] = {}
        self._superseded: list[tuple[int]] = []
        self._numbers = 0
        self._brought: dict[str, Origin] = {}
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        connection.executescript(sql("make_tables"))
        connection.execute("BEGIN")

    def add(self, record: Record) -> None:
        """Of records with the same id the one changed last counts."""
        changed = record.modified.timestamp() if record.modified else 0.0
        before = self._latest.get(record.advisory.id)
        if before and before[0] > changed:
            return
        if before:
            self._superseded.append((before[1],))
        self._numbers += 1
        self._latest[record.advisory.id] = changed, self._numbers, [] if record.withdrawn else record.aliases
        if record.withdrawn or not record.affected:
            return
        self._connection.execute(sql("advisory_add"), (self._numbers, msgspec.msgpack.encode(record.advisory)))
        self._connection.executemany(
            sql("package_add"),
            [(eco, name, self._numbers, msgspec.msgpack.encode(affected)) for eco, name, affected in record.affected],
        )

    def add_epss(self, rows: Iterable[tuple[str, float, float]]) -> None:
        self._connection.executemany(sql("epss_add"), rows)

    def add_kev(self, cves: Iterable[str]) -> None:
        self._connection.executemany(sql("kev_add"), ((cve,) for cve in cves))

    def brought(self, kind: str, origin: Origin) -> None:
        self._brought[kind] = origin

    def finish(self, before: Path) -> None:
        run = self._connection.execute
        run(sql("superseded_note"))
        self._connection.executemany(sql("superseded_add"), self._superseded)
        run(sql("superseded_packages_remove"))
        run(sql("superseded_advisories_remove"))
        self._connection.executemany(sql("name_add"), self._names())
        run("COMMIT")
        self._keep([kind for kind in KINDS if kind not in self._brought], before)
        self._connection.executescript(sql("make_indexes"))
        ecosystems = dict(run(sql("ecosystem_counts")).fetchall())
        facts = {kind: msgspec.json.encode(origin).decode() for kind, origin in self._brought.items()}
        facts |= {"format": FORMAT, "ecosystems": msgspec.json.encode(ecosystems).decode()}
        self._connection.executemany(sql("fact_add"), list(facts.items()))

    def _names(self) -> Iterator[tuple[str, int]]:
        groups = AliasGroups()
        for name, (_, _, aliases) in self._latest.items():
            groups.join(name, aliases)
        return groups.members()

    def _keep(self, kinds: list[str], before: Path) -> None:
        """Carry over what this update does not bring."""
        if not kinds or not before.exists():
            return
        try:
            with closing(Database(before)) as old:
                origins = old.origins
        except DatabaseUnavailable:
            return  # a damaged file must not stand in the way of its own repair
        self._connection.execute("ATTACH ? AS before", (read_only(before),))
        for kind in kinds:
            if kind in origins:
                self._connection.executescript(sql(f"copy_{kind}"))
                self._brought[kind] = origins[kind]
        self._connection.execute("DETACH before")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """An SQLite lock, for it works on every system and dies with its holder."""
    with closing(sqlite3.connect(path.with_name(f"{path.name}.lock"), timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise UpdateRunning(f"Another update of {path} is running; try again when it is done.") from error
        yield


def _to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
