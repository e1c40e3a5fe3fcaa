"""The page on extractions cannot fall behind."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import Holdfast
from holdfast.extraction.app import Extraction

PAGE = (Path(__file__).parents[2] / "docs" / "extraction.md").read_text(encoding="utf-8")


def test_every_route_of_extractions_is_on_the_page_and_no_other(sqlite_url: str) -> None:
    """By method and path."""
    hf = Holdfast(sqlite_url)
    usual = set(hf.asgi().openapi()["paths"])
    Extraction(hf)
    paths = hf.asgi().openapi()["paths"]
    served = {f"{method.upper()} {path.removeprefix('/api')}" for path in set(paths) - usual for method in paths[path]}
    assert set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`", PAGE)) == served


def test_the_application_of_the_page_can_be_made(tmp_path: Path) -> None:
    """As it stands there."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, object] = {}
    exec(code.replace("jobs.db", str(tmp_path / "jobs.db")), found)
    assert isinstance(found["extraction"], Extraction)
