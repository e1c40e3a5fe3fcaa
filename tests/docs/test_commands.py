"""Commands that are shown exist: in the pages of docs/, at the root, and in the help itself."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from holdfast.cli.examples import EXAMPLES
from holdfast.cli.root import cli
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


def test_every_command_that_the_dashboard_teaches_exists() -> None:
    """Empty pages say what to type: it works as it stands there."""
    templates = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("templates/**/*.html"))]
    calls = [
        call for text in templates for call in re.findall(r"(?:<code>|<pre[^>]*>|^)(holdfast [^<\n{]+)", text, re.MULTILINE)
    ]
    assert len(calls) >= 8
    assert [f"{call}: {why_not(call)}" for call in calls if why_not(call)] == []


@pytest.mark.parametrize("call", ["holdfast job list", "holdfast jobs list --status failed", "holdfast completion tcsh"])
def test_a_command_that_does_not_exist_would_be_noticed(call: str) -> None:
    """A wrong word, a wrong option, a wrong choice."""
    assert why_not(call)


def test_every_command_and_option_is_in_the_reference() -> None:
    """The page on the command line cannot fall behind."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(cli)
    commands: dict[str, click.Command] = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        commands[name] = command
        commands |= {f"{name} {sub}": found for sub, found in getattr(command, "commands", {}).items()}
    options = {option for command in (cli, *commands.values()) for parameter in command.params for option in parameter.opts}
    assert sorted(name for name in commands if f"holdfast {name}" not in page and f"`{name}" not in page) == []
    assert sorted(option for option in options if option.startswith("-") and f"`{option}" not in page) == []
