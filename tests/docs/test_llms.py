"""`docs/llms.txt`, the page for programs that read: what it names is there, in the repository and in the site."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_site import PAGES, SITE, entries
from tools import site

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "llms.txt").read_text(encoding="utf-8")


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_it_begins_with_the_name_and_one_sentence() -> None:
    """As the format asks: a heading, then a quotation that says what this is."""
    heading, _, quotation = TEXT.splitlines()[:3]
    assert heading == "# Holdfast" and quotation.startswith("> ")


def test_every_link_is_a_file_of_the_repository() -> None:
    """Seen from where the file is."""
    assert len(links(TEXT)) > 30
    assert [link for link in links(TEXT) if not (DOCS / link).is_file()] == []


def test_every_link_is_a_page_of_the_site() -> None:
    """Under the name that the page has there: the built file has the links of the site."""
    pages = {page.removesuffix(".md") + ".html" for page in entries(SITE["nav"])}
    built = links(site.llms_of_the_site())
    assert len(built) == len(links(TEXT))
    assert [link for link in built if link not in pages] == []


def test_no_guide_is_left_out() -> None:
    """A new one is found by programs too."""
    guides = [page.relative_to(DOCS).as_posix() for page in PAGES if page.parent.name == "guides"]
    assert [guide for guide in guides if guide not in links(TEXT)] == []
