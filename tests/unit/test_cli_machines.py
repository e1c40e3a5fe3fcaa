"""`holdfast machines` on the command line, with processes of this host as machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.doctor import examine
from holdfast.machines import local
from holdfast.machines.local import LocalProvider
from holdfast.machines.protocol import ProviderDenied
from tests.support.machines import FakeProvider


@pytest.fixture
def folder(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Machines that only sleep."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_MACHINE_PROVIDER", "local")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", sqlite_url)
    made = LocalProvider(["sleep", "600"], tmp_path / "machines")
    monkeypatch.setattr(local, "from_settings", lambda settings: LocalProvider(["sleep", "600"], tmp_path / "machines"))
    yield tmp_path
    asyncio.run(end_all(made))


async def end_all(provider: LocalProvider) -> None:
    for machine in await provider.list():
        await provider.destroy(machine.id)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["machines", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_machines_are_started_listed_and_stopped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs and for people."""
    [name] = asked(capsys, "scale", "1")["machines"]
    [machine] = asked(capsys, "list")["machines"]
    assert (machine["name"], machine["kind"], machine["state"]) == (name, "pool", "running")
    assert main(["machines", "list"]) == 0
    assert name in capsys.readouterr().out
    assert asked(capsys, "stop", name) == {"machines": [name]}
    assert asked(capsys, "usage") == {"usage": []}


def test_without_a_provider_the_command_says_what_to_set(
    tmp_path: Path, sqlite_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_MACHINE_PROVIDER", raising=False)
    assert main(["machines", "list", "--database", sqlite_url]) != 0
    assert "HOLDFAST_MACHINE_PROVIDER" in capsys.readouterr().err


async def test_the_doctor_asks_the_provider(sqlite_url: str) -> None:
    """How many are up; or what keeps it from answering, and that nobody need start a worker by hand."""
    provider = FakeProvider()
    provider.add("pool-1")
    hf = Holdfast(sqlite_url, machine_provider="local")
    hf.machines.use(provider)
    checks = {check.name: check for check in await examine(hf)}
    assert (checks["machines"].status, checks["workers"].status) == ("ok", "ok")
    assert "1 known, 0 up" in checks["machines"].message
    provider.failing["list"] = [ProviderDenied("401")]
    checks = {check.name: check for check in await examine(hf)}
    assert checks["machines"].status == "error" and "token" in checks["machines"].advice
    await hf.aclose()
