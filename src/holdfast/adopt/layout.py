"""What the database says of an adopted table, and how its columns are read and written."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adopt.table import COLUMNS, AdoptedTable, quoted
from holdfast.errors import ConfigError
from holdfast.store.named_sql import load_statements
from holdfast.store.protocol import Transaction

SQL = load_statements("holdfast.adopt")
TIMES = ("lease_expires_at", "last_heartbeat_at", "started_at", "next_earliest_run_at")
MUST_BE_THERE = ("id", "status")
PG_NAME_BYTES_MAX = 63
_PLACE = re.compile(r"\{(\w+)(?::(\w+))?\}")
_NUMBER = {
    "postgres": re.compile(r"(bigint|integer|numeric.*|double precision|real)"),
    "sqlite": re.compile(r".*(INT|REAL|FLOA|DOUB|NUM|DEC).*"),
}
_UNIX_EPOCH_JULIAN = "2440587.5"


@dataclasses.dataclass(frozen=True)
class Found:
    """A table as it is."""

    schema: str | None
    name: str
    columns: Mapping[str, str]
    """Name -> type, as the database writes it."""
    rows: float = 0.0
    """About so many; 0 where nobody knows."""

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)


@dataclasses.dataclass(frozen=True)
class Layout:
    """An adopted table, and that of its events where there is one."""

    kind: str
    adopted: AdoptedTable
    table: Found
    events: Found | None

    @property
    def missing(self) -> list[str]:
        return [ours for ours in COLUMNS if self.adopted.column(ours) not in self.table.columns]

    def require_complete(self) -> None:
        lacks = [f"the column {self.adopted.column(ours)}" for ours in self.missing]
        lacks += [] if self.events else [f"the table {self.adopted.events} for its events"]
        if lacks:
            raise ConfigError(
                f"The adopted table {self.adopted.table} lacks {lacks[0]}; "
                f"run `holdfast adopt --table {self.adopted.table} --apply`."
            )

    def sql(self, statement: str, *given: str) -> str:
        """A statement of adopt/*.sql for this table. Each `{place}` is filled once, so that no name is read as SQL.

        `{lease_expires_at}` is a column, `{past:lease_expires_at}` whether its moment has come by `$1`, `{seconds:started_at}`
        it as a number, `{table}` and `{events}` are the tables, `{lock}` takes the rows, `{given}` is the JSON of `$1` as a
        table `g` of the columns named in `given`, `{moment:next_earliest_run_at}` what that gives for it.
        """

        def fill(found: re.Match[str]) -> str:
            word, column = found[1], found[2]
            if column is None and word in COLUMNS:
                return quoted(self.adopted.column(word))
            if word in ("past", "seconds", "moment"):
                return str(getattr(self, f"_{word}")(column))
            return {
                "table": self.table.quoted,
                "events": self.events.quoted if self.events else "",
                "lock": "FOR UPDATE OF t SKIP LOCKED" if self.kind == "postgres" else "",
                "factor": _FACTOR[self.kind].replace("{stage}", f"t.{quoted(self.adopted.column('stage'))}"),
                "given": self._given(given),
                "limit": "$2",
            }[word]

        return _PLACE.sub(fill, SQL[statement])

    def type_of(self, ours: str) -> str:
        return self.table.columns[self.adopted.column(ours)]

    def _is_number(self, ours: str) -> bool:
        return (
            _NUMBER[self.kind].fullmatch(self.type_of(ours).upper() if self.kind == "sqlite" else self.type_of(ours))
            is not None
        )

    def _past(self, ours: str) -> str:
        """PostgreSQL compares in the column's own type, which an index on it serves."""
        column = f"t.{quoted(self.adopted.column(ours))}"
        if self.kind == "sqlite":
            return f"{self._seconds(ours)} <= $1"
        return f"{column} <= {self._written(ours, 'CAST($1 AS double precision)')}"

    def _seconds(self, ours: str) -> str:
        column = f"t.{quoted(self.adopted.column(ours))}"
        if self._is_number(ours):
            return column
        if self.kind == "sqlite":
            return f"((julianday({column}) - {_UNIX_EPOCH_JULIAN}) * 86400.0)"
        zone = " AT TIME ZONE 'UTC'" if self.type_of(ours).startswith("timestamp") and "without" in self.type_of(ours) else ""
        return f"CAST(extract(epoch FROM {column}{zone}) AS double precision)"

    def _moment(self, ours: str) -> str:
        return self._written(ours, f"g.{ours}")

    def _written(self, ours: str, seconds: str) -> str:
        if self._is_number(ours):
            return seconds
        if self.kind == "sqlite":
            return f"strftime('%Y-%m-%d %H:%M:%f', {seconds} / 86400.0 + {_UNIX_EPOCH_JULIAN})"
        return f"to_timestamp({seconds})" + (" AT TIME ZONE 'UTC'" if "without" in self.type_of(ours) else "")

    def _given(self, fields: Sequence[str]) -> str:
        """The JSON array in `$1` as a table `g`."""
        if self.kind == "sqlite":
            columns = ", ".join(f"json_extract(value, '$.{field}') AS {field}" for field in fields)
            return f"(SELECT {columns} FROM json_each($1)) AS g"
        return f"jsonb_to_recordset(CAST($1 AS jsonb)) AS g({', '.join(f'{one} {self._type_given(one)}' for one in fields)})"

    def _type_given(self, field: str) -> str:
        if field in TIMES:
            return "double precision"
        if field in ("job_id", "data"):
            assert self.events is not None
            return self.events.columns[field]
        if field == "held":
            return self.type_of("status")
        return "integer" if field == "attempt_count" else self.type_of(field)


_FACTOR = {
    "postgres": """coalesce(CAST(CAST($4 AS jsonb) ->> lower(CAST({stage} AS text)) AS double precision),
                            CAST($5 AS double precision))""",
    "sqlite": "coalesce((SELECT value FROM json_each($4) WHERE key = lower({stage})), $5)",
}


# -- looking ------------------------------------------------------------------------------------------------------------


async def look(tx: Transaction, adopted: AdoptedTable) -> Layout:
    """ConfigError where a table or a column that was named is not there, or is nothing that can be adopted."""
    table = await _found(tx, adopted.table)
    if table is None:
        raise ConfigError(f"There is no table {adopted.table!r} in this database{await _near(tx, adopted.table)}")
    if table.schema == "holdfast" or (tx.store_kind == "sqlite" and table.name.startswith("holdfast_")):
        raise ConfigError(f"The table {adopted.table} is Holdfast's own, which its reaper looks after already.")
    layout = Layout(tx.store_kind, adopted, table, await _found(tx, adopted.events, beside=table))
    _check_columns(layout)
    await _check_words(tx, layout)
    return layout


def _check_columns(layout: Layout) -> None:
    for ours in layout.missing:
        theirs = layout.adopted.column(ours)
        if ours in layout.adopted.columns or ours in MUST_BE_THERE:
            near = difflib.get_close_matches(theirs, layout.table.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"map {ours} to one of {', '.join(sorted(layout.table.columns))}."
            raise ConfigError(f"The table {layout.adopted.table} has no column {theirs!r}; {hint}")
    for ours in TIMES:
        if ours not in layout.missing:
            kind = layout.type_of(ours)
            if layout.kind == "postgres" and not (kind.startswith("timestamp") or _NUMBER["postgres"].fullmatch(kind)):
                raise ConfigError(
                    f"The column {layout.adopted.column(ours)} of {layout.adopted.table} is {kind}, which holds no moment; "
                    f"map {ours} to a timestamp, or to a number of seconds since 1970."
                )
    if layout.events is not None:
        for column in ("job_id", "data"):
            if column not in layout.events.columns:
                raise ConfigError(
                    f"The table {layout.adopted.events} has no column {column!r}, so it cannot take events; name another one."
                )


async def _check_words(tx: Transaction, layout: Layout) -> None:
    """Only an enumeration says which words there are."""
    if layout.kind != "postgres":
        return
    rows = await tx.fetch(SQL["enum_words"], layout.table.schema, layout.table.name, layout.adopted.column("status"))
    there = [row["word"] for row in rows]
    for ours in ("queued", "running", "completed", "failed"):
        if there and layout.adopted.word(ours) not in there:
            raise ConfigError(
                f"The status of {layout.adopted.table} cannot be {layout.adopted.word(ours)!r}, only {', '.join(there)}; "
                f"say which one means {ours}."
            )


async def _found(tx: Transaction, name: str, *, beside: Found | None = None) -> Found | None:
    if tx.store_kind == "sqlite":
        rows = await tx.fetch(SQL["sqlite_columns"], name)
        return Found(None, name, {row["name"]: row["type"] for row in rows}) if rows else None
    schema, dot, rest = name.partition(".")
    tries: list[tuple[str | None, str]] = [
        (beside.schema if beside else None, name),
        *([(schema, rest)] if dot and rest else []),
    ]
    for where, bare in tries:
        if len(bare.encode()) <= PG_NAME_BYTES_MAX:
            rows = await tx.fetch(SQL["postgres_columns"], where, bare)
            if rows:
                columns = {row["name"]: row["type"] for row in rows}
                return Found(rows[0]["schema"], bare, columns, max(0.0, rows[0]["about"]))
    return None


async def _near(tx: Transaction, name: str) -> str:
    rows: list[dict[str, Any]] = await tx.fetch(SQL[f"{tx.store_kind}_tables"])
    near = difflib.get_close_matches(name, [row["name"] for row in rows], n=1)
    return f"; did you mean {near[0]!r}?" if near else "; name it as the database does, with its schema where it has one."
