"""Holdfast's migrations on a connection that belongs to a framework, inside its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast import Holdfast

Run = Callable[[str], None]


def apply(hf: Holdfast, applied: Iterable[tuple[str, int]], run: Run) -> None:
    """`applied`: the rows (component, version) of the migrations' table, none where it is not there yet."""
    done: dict[str, set[int]] = {}
    for component, version in applied:
        done.setdefault(component, set()).add(version)
    extensions = {name: one.migrations_for(hf.store.name) for name, one in hf.extensions.items()}
    for script in hf.store.schema_scripts(done, extensions):
        run(script)


def migrations_table(hf: Holdfast) -> str:
    return "holdfast_migrations" if hf.store.name == "sqlite" else "holdfast.migrations"
