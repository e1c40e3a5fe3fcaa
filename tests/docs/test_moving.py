"""The tables of the guide for those who come from another queue name only what Holdfast has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.context import CurrentRun
from holdfast.integrations import pytest_plugin
from holdfast.job import Job
from holdfast.options import EnqueueOptions, TaskOptions
from holdfast.settings import Settings
from holdfast.task import Task

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "moving.md").read_text(encoding="utf-8")
OURS = "\n".join(row.split(" | ", 1)[1] for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE))
OPTIONS = {**TaskOptions.__annotations__, **EnqueueOptions.__annotations__}
KNOWN = {"total", "per", "then", "timeout", "a"}
"""Keywords of `hf.limit`, `hf.batch` and `result`, and of the task that the tables speak of."""


@pytest.mark.parametrize(
    ("pattern", "owner"),
    [
        (r"\bhf\.(\w+)", holdfast.Holdfast("sqlite:///never-opened.db")),
        (r"\bcurrent\(\)\.(\w+)", CurrentRun),
        (r"\bjob\.(\w+)", Job),
        (r"\b[fg]\.(\w+)", Task),
        (r"\braise (\w+)", holdfast),
        (r"`(retention_\w+)`", Settings),
        (r"`(holdfast_\w+)`", pytest_plugin),
    ],
    ids=["hf", "current", "job", "task", "exceptions", "settings", "fixtures"],
)
def test_every_name_exists(pattern: str, owner: object) -> None:
    """On the object that the table puts it on."""
    names = set(re.findall(pattern, OURS))
    assert names
    assert sorted(name for name in names if not hasattr(owner, name)) == []


def test_every_keyword_is_an_option() -> None:
    """Of a task or of a job, or of the three calls that are named above."""
    keywords = set(re.findall(r"\b(\w+)=", OURS))
    assert {"order", "unique", "permanent", "on_failed"} <= keywords
    assert sorted(keywords - OPTIONS.keys() - KNOWN) == []


def test_a_name_that_does_not_exist_would_be_noticed() -> None:
    """The tables are found, and the Holdfast column alone is read."""
    assert "hf.batch" in OURS and "delay_on_commit" not in OURS
