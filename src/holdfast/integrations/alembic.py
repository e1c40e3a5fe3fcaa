"""Holdfast's migrations inside one's own, and autogenerate that leaves Holdfast's tables alone."""

from __future__ import annotations

from typing import Any

import sqlalchemy

from holdfast import Holdfast
from holdfast.errors import ConfigError
from holdfast.integrations import schema

_KINDS = {"postgresql": "postgres", "sqlite": "sqlite"}


def upgrade(op: Any, hf: Holdfast) -> None:
    """In a revision: `from alembic import op`, then `def upgrade(): holdfast.integrations.alembic.upgrade(op, hf)`.

    Brings Holdfast's tables up to the version that is installed, on Alembic's own connection and in its transaction. Safe to
    have in several revisions: add one after an update of Holdfast. With `--sql` it writes what an empty database needs.
    """
    context = op.get_context()
    if _KINDS.get(context.dialect.name) != hf.store.name:
        raise ConfigError(f"Alembic migrates {context.dialect.name}, but the jobs are stored in {hf.store.name}.")
    if context.as_sql:
        schema.apply(hf, [], lambda script: context.impl.static_output(f"{script.rstrip().rstrip(';')};\n"))
        return
    bind = op.get_bind()
    names = ("migrations", "holdfast") if hf.store.name == "postgres" else ("holdfast_migrations", None)
    is_there = sqlalchemy.inspect(bind).has_table(names[0], schema=names[1])
    found = bind.exec_driver_sql(f"SELECT component, version FROM {schema.migrations_table(hf)}") if is_there else ()
    schema.apply(hf, [(row[0], row[1]) for row in found], lambda script: _run(bind, script))


def _run(bind: Any, script: str) -> None:
    """By the driver itself: a script has several statements, and marks that are no parameters."""
    bind.exec_driver_sql("SELECT 1")  # so that the driver's transaction is open
    raw = bind.connection.dbapi_connection
    if hasattr(raw, "run_async"):
        raw.run_async(lambda connection: connection.execute(script))
        return
    cursor = raw.cursor()
    try:
        cursor.execute(script)
    finally:
        cursor.close()


def include_name(name: str | None, type_: str, parent_names: Any) -> bool:
    """For `context.configure(include_name=include_name)`: autogenerate shall not drop what it does not know."""
    if type_ == "schema":
        return name != "holdfast"
    return not (type_ == "table" and name is not None and name.startswith("holdfast_"))
