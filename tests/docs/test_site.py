"""The pages hang together: all are in the site's navigation, and no link leads nowhere. Cheaper than building the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import site

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ALL = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "examples").rglob("*.md")), ROOT / "bench" / "README.md"]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def entries(nav: Any) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from entries(value)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(page: Path) -> set[str]:
    """As the site makes them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def test_every_page_is_in_the_navigation_once() -> None:
    """And every entry of it is a page."""
    named = list(entries(SITE["nav"]))
    there = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
    joined = [place for place in site.JOINED.values() if place.endswith(".md")]
    assert sorted({*there, *joined} - {*named}) == [], "put them into `nav` of mkdocs.yml"
    assert sorted({*named} - {*there, *joined}) == [], "take them out of `nav` of mkdocs.yml"
    assert len(named) == len(set(named))


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """To a file that is there, and a heading that it has."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(target)
    assert wrong == []


def test_a_link_that_leads_nowhere_would_be_noticed() -> None:
    """Headings become anchors as the site makes them."""
    found = anchors(ROOT / "docs" / "operations" / "runbook.md")
    assert "database-away" in found and "no-such-heading" not in found


def test_links_between_pages_inside_and_outside_of_docs_work_in_the_site() -> None:
    """A page that joins from the root, one that links there, and a file that is in no page."""
    assert site.with_links_of_the_site("[a](docs/tenants.md#plans)", "project/architecture.md") == "[a](../tenants.md#plans)"
    assert site.with_links_of_the_site("[b](../bench/results/peers.md)", "comparison.md") == "[b](project/peers.md)"
    assert site.with_links_of_the_site("[c](../pyproject.toml)", "comparison.md") == "c"


def test_the_site_asks_no_other_host() -> None:
    """No fonts and no scripts from outside: neither in the settings nor in the pictures."""
    assert SITE["theme"]["font"] is False and not {"extra_javascript", "extra_css"} & set(SITE)
    drawings = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.svg")]
    assert [text for text in drawings if re.search(r"(href|src)=.https?:|@import|url\(.?https?:", text)] == []
