"""The tables of a store, from one row per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from holdfast.store.protocol import Table


def tables_of(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """`place` is a column's place in the primary key, from 1 on; 0: not in it."""
    found = []
    for name, group in groupby(rows, key=lambda row: str(row["name"])):
        columns = [(row["column_name"], row["place"]) for row in group]
        key = [column for column, place in sorted(columns, key=lambda one: one[1]) if place]
        found.append(Table(name, tuple(column for column, _ in columns), tuple(key)))
    return found
