"""The page on the HTTP API cannot fall behind."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import Holdfast
from holdfast.web.problems import STATUSES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")


def test_every_route_is_in_the_reference_and_no_other(sqlite_url: str) -> None:
    """By method and path."""
    paths = Holdfast(sqlite_url).asgi().openapi()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    told = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`", PAGE))
    assert told == served | {"GET /api/openapi.json"}


def test_every_code_of_an_error_is_in_the_reference() -> None:
    """Under the status it has."""
    rows = {int(status): codes for status, codes in re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE, re.MULTILINE)}
    codes = {kind: status for kind, status in STATUSES.items() if vars(kind).get("code")}  # others get theirs when raised
    assert [f"{kind.code} ({status})" for kind, status in codes.items() if f"`{kind.code}`" not in rows[status]] == []  # type: ignore[attr-defined]
