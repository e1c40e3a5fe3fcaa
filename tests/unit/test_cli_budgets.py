"""Budgets and breakers on the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main


class Command:
    """`holdfast --database …` on one file."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert main(["--database", self.url, *arguments]) == code
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def holdfast(sqlite_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(sqlite_url, capsys)


def test_a_budget_is_set_overridden_shown_and_listed(holdfast: Command) -> None:
    """As JSON and as people read it; `-` means jobs without a tenant."""
    assert "No budget was set" in holdfast("budgets", "list")
    assert holdfast.json("budgets", "set", "acme", "ai", "--cents", "5000", "--by", "ana")["cents"] == 5000
    assert holdfast.json("budgets", "override", "acme", "ai", "--cents", "100", "--reason", "launch")["cents"] == 5100
    holdfast("budgets", "set", "-", "ai", "--cents", "10")
    assert [one["tenant"] for one in holdfast.json("budgets", "list")["budgets"]] == [None, "acme"]
    shown = holdfast("budgets", "show", "acme", "ai")
    assert "░░░░░░░░░░ 0/5,100" in shown and "+100 by an override" in shown
    assert holdfast.json("budgets", "set", "acme", "ai", "--cents", "none")["cents"] is None
    assert holdfast.json("budgets", "set-plan", "free", "ai", "--cents", "7")["cents"] == 7
    assert holdfast.json("budgets", "show", "acme", "ai")["budget"]["by_plan"] is True


def test_who_set_a_budget_is_on_record(holdfast: Command) -> None:
    """With the login name, or the name that was given."""
    holdfast("budgets", "set", "acme", "ai", "--cents", "5", "--by", "ana")

    async def read() -> list[tuple[str, str | None]]:
        hf = Holdfast(holdfast.url)
        found = await hf.events(tenant="acme")
        await hf.aclose()
        return [(event.type, event.actor) for event in found]

    assert asyncio.run(read()) == [("budget.changed", "ana")]


@pytest.mark.parametrize("cents", ["-1", "much", "nan"])
def test_a_cap_that_cannot_be_one_is_refused(holdfast: Command, cents: str) -> None:
    """With what would be right."""
    assert "number of cents" in holdfast("budgets", "set", "acme", "ai", f"--cents={cents}", code=2)


def test_a_breaker_is_opened_closed_shown_and_listed(holdfast: Command) -> None:
    """As JSON and as people read it."""
    assert "No service has failed" in holdfast("breakers", "list")
    assert holdfast.json("breakers", "open", "linear", "--reason", "maintenance", "--by", "ana")["opened_by"] == "ana"
    assert "maintenance" in holdfast("breakers", "show", "linear")
    assert [one["state"] for one in holdfast.json("breakers", "list")["breakers"]] == ["open"]
    assert holdfast.json("breakers", "close", "linear")["state"] == "closed"
