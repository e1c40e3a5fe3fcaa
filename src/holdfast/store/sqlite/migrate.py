"""Forward only, numbered, inside the writer's transaction: safe at every start and from many processes at once."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from holdfast.errors import NotMigrated, NotOurDatabase, SchemaTooNew
from holdfast.store.named_sql import load_migrations
from holdfast.store.sqlite.connection import MEMORY, require_folder
from holdfast.store.sqlite.session import STATEMENTS, Session

MIGRATIONS = load_migrations("holdfast.store.sqlite")
VERSION = max(number for number, _, _ in MIGRATIONS)


def migrate(session: Session, path: str) -> list[str]:
    with suppress(NotMigrated):
        check_version(session, path)
    session.run("migrations_create")
    return migrate_component(session, "core", MIGRATIONS)


def migrate_component(session: Session, component: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
    applied = {row["version"] for row in session.all("migrations_applied", component=component)}
    done = []
    for number, name, sql in sorted(migrations):
        if number not in applied:
            for statement in _statements(sql):
                session.connection.execute(statement)
            session.run("migrations_record", component=component, version=number, name=name)
            done.append(f"{number:04}_{name}")
    return done


def scripts(applied: Mapping[str, Collection[int]], extensions: Mapping[str, Sequence[tuple[int, str, str]]]) -> list[str]:
    """All of it, statement by statement, for a connection that is not ours."""
    found = [STATEMENTS["migrations_create"]]
    for component, migrations in {"core": MIGRATIONS, **extensions}.items():
        for number, name, sql in sorted(migrations):
            if number not in applied.get(component, ()):
                named = ", ".join("'" + text.replace("'", "''") + "'" for text in (component, name))
                columns = "(component, name, version, applied_at)"
                now = "(julianday('now') - 2440587.5) * 86400.0"
                record = f"INSERT INTO holdfast_migrations {columns} VALUES ({named}, {number}, {now})"
                found += [*_statements(sql), record]
    return found


def check_version(session: Session, path: str) -> int:
    tables = {row["name"] for row in session.all("tables_of_ours")}
    if not tables:
        raise _not_migrated(path)
    found = _core_version(session) if "holdfast_migrations" in tables else 0
    if not found:
        raise NotOurDatabase(
            f"The database {path} has tables called holdfast_… that Holdfast did not make; rename them, or use another file."
        )
    if found > VERSION:
        raise SchemaTooNew(
            f"The database {path} has schema version {found}, this Holdfast knows {VERSION}; upgrade the holdfast package."
        )
    if found < VERSION:
        raise _not_migrated(path)
    return found


def require_file(path: str) -> None:
    if path != MEMORY and not os.path.exists(path):
        require_folder(path)
        raise _not_migrated(path)


def _not_migrated(path: str) -> NotMigrated:
    return NotMigrated(
        f"The database {path} is not set up for this version; run `holdfast migrate` or call `await hf.migrate()` at start."
    )


def _core_version(session: Session) -> int:
    try:
        return max((row["version"] for row in session.all("migrations_applied", component="core")), default=0)
    except sqlite3.OperationalError:
        return 0  # a table of that name, but with other columns


def _statements(script: str) -> list[str]:
    """Not executescript(): that would commit the transaction which makes a migration all or nothing."""
    found, part = [], ""
    for piece in re.split("(?<=;)", script):
        part += piece
        if sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    if part.strip():
        found.append(part)
    return found
