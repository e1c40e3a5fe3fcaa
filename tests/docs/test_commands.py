"""Commands that are shown exist: in the pages of docs/, at the root, and in the help itself."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from holdfast.cli.examples import EXAMPLES
from tests.support.commands import leaves, shown_calls, why_not

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("context", list(leaves()), ids=lambda context: context.command_path)
def test_the_help_of_a_command_has_an_example(context: click.Context) -> None:
    """And a first sentence."""
    text = context.command.get_help(context)
    assert "Example" in text and (context.command.help or "").strip()


def test_every_example_of_the_help_is_a_call_of_its_command() -> None:
    """With options and choices that there are."""
    calls = {words: call.removeprefix('eval "$(').removesuffix(')"') for words, call in EXAMPLES.items()}
    assert [f"{call}: {why_not(call)}" for call in calls.values() if why_not(call)] == []
    assert [words for words, call in calls.items() if not call.startswith(f"holdfast {words}")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_on_a_page_exists(page: Path) -> None:
    """By its words, its options and its choices."""
    wrong = [f"{call}: {why_not(call)}" for call in shown_calls(page.read_text(encoding="utf-8")) if why_not(call)]
    assert wrong == []


@pytest.mark.parametrize("call", ["holdfast job list", "holdfast jobs list --status failed", "holdfast completion tcsh"])
def test_a_command_that_does_not_exist_would_be_noticed(call: str) -> None:
    """A wrong word, a wrong option, a wrong choice."""
    assert why_not(call)
