"""The database file: an SQLite file that is built aside, swapped in whole, and never changed after that."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.extraction.advisories.errors import DatabaseUnavailable
from holdfast.extraction.advisories.ranges import Affected
from holdfast.extraction.advisories.records import Advisory

FORMAT = "1"
KINDS = ("advisories", "epss", "kev")


class Origin(msgspec.Struct, frozen=True):
    """Where one kind of data is from."""

    version: str
    dated: datetime | None
    """When the publisher last changed it; None where the data does not say."""
    brought_at: datetime
    entries: int
    sources: list[str]
    """Without credentials and query strings."""


@cache
def sql(name: str) -> str:
    blocks = files(__package__).joinpath("database.sql").read_text(encoding="utf-8").split("-- name: ")[1:]
    return {title.strip(): body.strip() for title, _, body in (block.partition("\n") for block in blocks)}[name]


class Database:
    """A finished file, to read. A swap does not disturb it: it goes on with the file it has opened."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DatabaseUnavailable(
                f"There is no advisory database at {path}; `holdfast advisories update SOURCE` makes one."
            )
        try:
            self._connection = sqlite3.connect(read_only(path), uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise _unreadable(path) from error
        self._path = path
        facts = dict(self._rows("facts_all"))
        if facts.get("format") != FORMAT:
            self.close()
            raise _unreadable(path)
        self.ecosystems = msgspec.json.decode(facts["ecosystems"], type=dict[str, int])
        """Covered ecosystem -> how many advisories there are for it."""
        self.origins = {kind: msgspec.json.decode(facts[kind], type=Origin) for kind in KINDS if kind in facts}

    def close(self) -> None:
        self._connection.close()

    def affected(self, ecosystem: str, name: str) -> list[tuple[int, Affected]]:
        rows = self._rows("packages_of", ecosystem, name)
        return [(number, msgspec.msgpack.decode(body, type=Affected)) for number, body in rows]

    def advisory(self, number: int) -> Advisory:
        return msgspec.msgpack.decode(self._rows("advisory_get", number)[0][0], type=Advisory)

    def names_beside(self, name: str) -> list[str]:
        """Every name of the same alias group, itself included."""
        found = self._rows("group_of", name)
        return [other for (other,) in self._rows("names_of", *found[0])] if found else [name]

    def epss(self, cve: str) -> tuple[float, float] | None:
        return next(iter(self._rows("epss_get", cve)), None)

    def is_exploited(self, cve: str) -> bool:
        return bool(self._rows("kev_get", cve))

    def _rows(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql(name), values).fetchall()
        except sqlite3.Error as error:
            self.close()
            raise _unreadable(self._path) from error


def read_only(path: Path) -> str:
    """Immutable: nobody writes into a finished file, so SQLite needs no locks and leaves no files beside it."""
    return f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"


def _unreadable(path: Path) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"The advisory database at {path} is damaged or of another version; "
        "`holdfast advisories update SOURCE` makes a new one."
    )
