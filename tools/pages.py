"""Figures that tools write into docs/reliability.md, each kind between two marks of its own."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by its tool with --report -->", f"<!-- end of {name} -->"


def placed(page: str, name: str, text: str) -> str:
    """The page with this text between the two marks."""
    begin, end = marks(name)
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"docs/reliability.md has no {begin} … {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def written(name: str, text: str) -> None:
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def where_and_when() -> str:
    """Of figures that are made now."""
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine}"
