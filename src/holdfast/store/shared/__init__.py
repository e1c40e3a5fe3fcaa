"""Statements that read the same on both databases: for what lies off a job's path (keys, members, rate limits, …).

Their dialect: tables are written `holdfast.keys`, parameters `$1`, `$2`, …; `:now` is the database's time, `:later(seconds)`
a moment after it and `:since(moment)` the seconds that have passed. `:alone(text)` is false while another transaction holds the
same text; on SQLite, where writers take turns, never. `:tell(text)` wakes whoever listens on PostgreSQL; on SQLite every commit
does. Columns that end in `_at` are times, objects are JSON text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.store.named_sql import load_statements, qualified_for_postgres
from holdfast.store.protocol import CallerStatement

_NAMED = load_statements(__name__)
_PARAMETER = re.compile(r"\$(\d+)")
_LATER = re.compile(r":later\(([^()]*)\)")
_SINCE = re.compile(r":since\(([^()]*)\)")
_ALONE = re.compile(r":alone\(([^()]*)\)")
_TELL = re.compile(r":tell\(([^()]*)\)")
_TIME = re.compile(r":(now|later|since)\b")


def _for_postgres(sql: str) -> str:
    last = max(map(int, _PARAMETER.findall(sql)), default=0)
    now = f"coalesce(CAST(${last + 1} AS timestamptz), clock_timestamp())"
    sql = _LATER.sub(rf"({now} + make_interval(secs => CAST(\1 AS double precision)))", sql)
    sql = _SINCE.sub(rf"CAST(extract(epoch FROM {now} - \1) AS double precision)", sql)
    sql = _ALONE.sub(r"pg_try_advisory_xact_lock(hashtextextended(\1, 0))", sql)
    sql = _TELL.sub(r"pg_notify('holdfast', \1)", sql)
    return qualified_for_postgres(sql.replace(":now", now))


def _for_sqlite(sql: str) -> str:
    sql = _TELL.sub("NULL", _ALONE.sub("true", sql))
    return _SINCE.sub(r"(:now - \1)", _LATER.sub(r"(:now + \1)", sql)).replace("holdfast.", "holdfast_")


POSTGRES = {name: _for_postgres(sql) for name, sql in _NAMED.items()}
TIMED = frozenset(name for name, sql in _NAMED.items() if _TIME.search(re.sub(r"'[^']*'", "", sql)))
"""Those that ask for the time; on PostgreSQL it is one more parameter."""
SQLITE = {name: _for_sqlite(sql) for name, sql in _NAMED.items()}
WRITING = frozenset(name for name, sql in _NAMED.items() if not sql.lstrip().upper().startswith("SELECT"))


def sqlite_values(args: tuple[Any, ...], now: float) -> dict[str, Any]:
    values = {str(no): arg.timestamp() if isinstance(arg, datetime) else arg for no, arg in enumerate(args, 1)}
    return {"now": now, **values}


def from_sqlite(row: Any) -> dict[str, Any]:
    """The times of a row as what they are."""
    return {
        name: datetime.fromtimestamp(value, UTC) if name.endswith("_at") and isinstance(value, (int, float)) else value
        for name, value in dict(row).items()
    }


def caller_statement_for_postgres(name: str, args: tuple[Any, ...]) -> CallerStatement:
    """A shared statement with all its arguments in one: `args` end with the time where it asks for that."""
    sql = _PARAMETER.sub(lambda found: f"(SELECT v ->> {int(found[1]) - 1} FROM given)", POSTGRES[name])
    return CallerStatement(f"WITH given AS (SELECT CAST($1 AS json) AS v) {sql}", msgspec.json.encode(args).decode())


def caller_statement_for_sqlite(name: str, args: tuple[Any, ...], now: float) -> CallerStatement:
    sql = SQLITE[name].replace(":now", f"${len(args) + 1}")
    sql = _PARAMETER.sub(lambda found: f"(SELECT json_extract(v, '$[{int(found[1]) - 1}]') FROM given)", sql)
    return CallerStatement(f"WITH given AS (SELECT $1 AS v) {sql}", msgspec.json.encode([*args, now]).decode())
