"""Keys and members on the command line, on both databases."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.people.keys import ValidKey


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture
def holdfast(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command on a fresh database, in an empty folder."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(("--database", database_url, *arguments))
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


def opened_by(database_url: str, secret: str) -> ValidKey | None:
    async def ask() -> ValidKey | None:
        hf = Holdfast(database_url)
        try:
            return await hf.keys.valid(secret)
        finally:
            await hf.aclose()

    return asyncio.run(ask())


def test_a_key_is_made_shown_once_and_revoked(holdfast: Command, database_url: str) -> None:
    """The secret alone is on standard output, so that a script can keep it."""
    made = holdfast("keys", "create", "--tenant", "acme", "--role", "admin", "--expires", "90d", "--name", "ci", "--by", "ana")
    secret = made.out.strip()
    key = opened_by(database_url, secret)
    assert key is not None
    listed = holdfast("keys", "list", "--json")
    shown = holdfast("keys", "list")
    revoked = holdfast("keys", "revoke", key.id)
    assert (made.code, key.tenant, key.role.word) == (0, "acme", "admin")
    assert (listed.json["keys"][0]["created_by"], listed.json["next_cursor"]) == ("ana", None)
    assert secret not in made.err + listed.out + shown.out + revoked.out
    assert (revoked.code, opened_by(database_url, secret)) == (0, None)
    assert [holdfast("keys", "revoke", key.id).code, holdfast("keys", "revoke", "nothing").code] == [4, 3]


def test_a_service_key_is_across_tenants(holdfast: Command, database_url: str) -> None:
    """It is asked for by name."""
    made = holdfast("keys", "create", "--service", "--json").json
    key = opened_by(database_url, made["secret"])
    assert key is not None
    assert (key.tenant, key.role.word) == (None, "service")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--tenant", "acme", "--service"),
        ("--service", "--role", "admin"),
        ("--tenant", "acme", "--role", "service"),
        ("--tenant", "acme", "--expires", "soon"),
        ("--tenant", ""),
    ],
)
def test_a_key_that_is_not_clear_is_not_made(holdfast: Command, options: tuple[str, ...]) -> None:
    """Wrong usage, with what would be right, and nothing written."""
    refused = holdfast("keys", "create", *options)
    assert (refused.code, refused.out) == (2, "")
    assert holdfast("keys", "list", "--json").json["keys"] == []


def test_members_are_added_changed_and_removed(holdfast: Command) -> None:
    """The last owner stays, also for whoever has the database."""
    codes = [
        holdfast("members", "add", "acme", "u1", "--role", "owner").code,
        holdfast("members", "add", "acme", "u2").code,
        holdfast("members", "add", "acme", "u2").code,
        holdfast("members", "role", "acme", "u2", "admin").code,
        holdfast("members", "remove", "acme", "u1").code,
        holdfast("members", "role", "acme", "u1", "viewer").code,
        holdfast("members", "remove", "acme", "nobody").code,
    ]
    listed = holdfast("members", "list", "acme", "--json").json["members"]
    assert codes == [0, 0, 4, 0, 4, 4, 3]
    assert [(member["user_id"], member["role"]) for member in listed] == [("u1", "owner"), ("u2", "admin")]
    assert holdfast("members", "remove", "acme", "u2", "--json").json["role"] == "admin"
    assert "u2" not in holdfast("members", "list", "acme").out
