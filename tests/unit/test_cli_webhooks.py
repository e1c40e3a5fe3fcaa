"""Webhooks on the command line, without an app."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def holdfast(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command on a fresh database, in an empty folder."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(("--database", sqlite_url, *arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def told(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def test_a_webhook_from_its_making_to_its_end(holdfast: Command) -> None:
    """Each command, in JSON; the secret is printed once and is in no list."""
    made = told(holdfast("webhooks", "set", "acme", "https://example.com/", "--event", "job.*", "--by", "ana", "--json"))
    webhook, secret = made["webhook"]["id"], made["secret"]
    assert secret.startswith("whsec_") and made["webhook"]["events"] == ["job.*"]
    rotated = told(holdfast("webhooks", "rotate", webhook, "--json"))
    assert rotated["secret"] not in ("", secret)
    changed = told(holdfast("webhooks", "set", "acme", "--id", webhook, "--description", "billing", "--json"))
    assert (changed["description"], changed["url"]) == ("billing", "https://example.com/")
    delivery = told(holdfast("webhooks", "test", webhook, "--json"))["deliveries"][0]
    assert delivery["status"] == "queued"
    assert told(holdfast("webhooks", "deliveries", webhook, "--json"))["deliveries"] == [delivery]
    assert told(holdfast("webhooks", "replay", webhook, "--json")) == {"replayed": []}
    assert told(holdfast("webhooks", "disable", webhook, "--reason", "moving", "--json"))["status"] == "disabled"
    code, table, _ = holdfast("webhooks", "list")
    assert code == 0 and webhook in table and "moving" in table and "whsec_" not in table
    assert told(holdfast("webhooks", "enable", webhook, "--json"))["status"] == "ok"
    told(holdfast("webhooks", "remove", webhook, "--json"))
    assert told(holdfast("webhooks", "list", "--json"))["webhooks"] == []


def test_mistakes_have_their_exit_codes(holdfast: Command) -> None:
    """An address that may not be called, and a webhook that is not there."""
    code, _, said = holdfast("webhooks", "set", "acme", "https://localhost.example/#x")
    assert code == 2 and "fragment" in said
    assert holdfast("webhooks", "set", "acme")[0] == 2
    assert holdfast("webhooks", "test", "wh_0123456789ab")[0] == 3
