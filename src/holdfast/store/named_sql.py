"""SQL is read as SQL: statements live in `.sql` files, each under a line `-- name: job_claim`."""

from __future__ import annotations

import re
from importlib.resources import files

_FUNCTIONS = (
    "array_position clock_timestamp count floor hashtextextended jsonb_array_elements jsonb_array_elements_text "
    "jsonb_build_object jsonb_to_record jsonb_to_recordset make_interval max min mod pg_notify pg_try_advisory_xact_lock "
    "statement_timestamp substr sum"
)
_CALL = re.compile(rf"(?<![.\w])({'|'.join(_FUNCTIONS.split())})\(")


def qualified_for_postgres(sql: str) -> str:
    """With pg_catalog before the functions it calls: a caller's search_path may lead to others that match better."""
    return _CALL.sub(r"pg_catalog.\1(", sql)


def load_statements(package: str) -> dict[str, str]:
    """Every named statement of the `.sql` files beside a store (not of its `migrations/`)."""
    found: dict[str, str] = {}
    for entry in sorted(files(package).iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".sql") or entry.name in ("schema.sql", "functions.sql"):
            continue
        for block in entry.read_text(encoding="utf-8").split("-- name: ")[1:]:
            name, _, sql = block.partition("\n")
            if name.strip() in found:
                raise ValueError(f"statement {name.strip()} is there twice, the second time in {entry.name}")
            found[name.strip()] = sql.strip().rstrip(";")
    return found


def load_migrations(package: str) -> list[tuple[int, str, str]]:
    """(number, name, sql) of the files `migrations/NNNN_name.sql`, in order; no number twice."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            number, _, name = entry.name[:-4].partition("_")
            found.append((int(number), name, entry.read_text(encoding="utf-8")))
    found.sort()
    if len({number for number, _, _ in found}) != len(found):
        raise ValueError(f"two migrations of {package} have the same number")
    return found
