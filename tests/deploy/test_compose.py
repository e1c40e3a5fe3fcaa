"""compose.yaml: its services, their order, and that each command exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.deployment import documents, refusal

(COMPOSE,) = documents("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ["migrate", "server", "worker", "reaper"]


def test_there_are_the_five_services() -> None:
    """The whole platform on one host."""
    assert list(SERVICES) == ["db", *OURS]


@pytest.mark.parametrize("name", OURS)
def test_each_command_exists(name: str) -> None:
    """With all its options, in exec form."""
    command = SERVICES[name]["command"]
    assert isinstance(command, list) and command[0] == name
    assert refusal(command) is None


def test_a_wrong_command_would_be_noticed() -> None:
    """The check above can fail."""
    assert refusal(["worker", "--concurency", "2"]) is not None
    assert refusal(["wroker"]) is not None


@pytest.mark.parametrize("name", OURS)
def test_services_are_confined(name: str) -> None:
    """They build the same image, write nowhere but /tmp and may gain nothing."""
    service = SERVICES[name]
    assert service["build"] == {"context": ".", "target": "extraction"}
    assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"])


def test_nothing_runs_before_the_schema_is_there() -> None:
    """The database is healthy, then migrated, then used."""
    assert SERVICES["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"
    for name in ("server", "worker", "reaper"):
        assert SERVICES[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}


def test_a_process_that_ends_with_an_error_is_started_again() -> None:
    """As one does that its watchdog has ended."""
    assert {name for name, one in SERVICES.items() if one["restart"] == "unless-stopped"} == {
        "db",
        "server",
        "worker",
        "reaper",
    }


def test_a_worker_is_not_killed_while_it_drains() -> None:
    """Docker waits longer than the worker's own grace period."""
    worker = SERVICES["worker"]
    grace = int(worker["command"][worker["command"].index("--grace") + 1])
    assert int(worker["stop_grace_period"].removesuffix("s")) > grace


def test_no_secret_has_a_default_and_the_database_has_no_port() -> None:
    """Nobody runs with a password that everybody knows."""
    for name in ("db", *OURS):
        for variable, value in SERVICES[name]["environment"].items():
            if "PASSWORD" in str(value):
                assert "${POSTGRES_PASSWORD:?" in value, f"{name}: {variable}"
    assert "ports" not in SERVICES["db"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["server"]["ports"])


def test_the_database_is_pinned_and_keeps_its_data() -> None:
    """By version and digest, on a volume."""
    assert re.fullmatch(r"postgres:\d+\.\d+-\w+@sha256:[0-9a-f]{64}", SERVICES["db"]["image"])
    assert SERVICES["db"]["volumes"] == ["database:/var/lib/postgresql/data"]
    assert "database" in COMPOSE["volumes"]
