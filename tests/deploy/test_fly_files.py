"""deploy/fly.toml and fly.md: what Fly is told, and what people are told."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import pytest

from holdfast.settings import Settings
from tests.support.deployment import ROOT, refusal

TOML: dict[str, Any] = tomllib.loads((ROOT / "deploy" / "fly.toml").read_text(encoding="utf-8"))
GUIDE = (ROOT / "fly.md").read_text(encoding="utf-8")
DOLLARS_PER_SECOND = 0.0002153


def test_workers_open_no_port() -> None:
    """No service at all: Fly Proxy neither starts nor stops a worker."""
    assert not {"http_service", "services", "mounts"} & set(TOML)


def test_machines_are_large_and_near() -> None:
    """performance, 8 CPUs, 64 GB, iad."""
    (machine,) = TOML["vm"]
    assert (machine["cpu_kind"], machine["cpus"], machine["memory"]) == ("performance", 8, "65536mb")
    assert TOML["primary_region"] == "iad"


def test_a_worker_that_exits_stays_down() -> None:
    """Fly's own word for that in this file is `never`."""
    assert TOML["restart"] == [{"policy": "never", "processes": ["worker"]}]
    assert TOML["env"]["HOLDFAST_EXIT_WHEN_IDLE_SEC"] == "60"


def test_a_worker_drains_within_what_fly_allows() -> None:
    """SIGTERM, 300 s at the most, and the worker's own grace is shorter."""
    assert (TOML["kill_signal"], TOML["kill_timeout"]) == ("SIGTERM", 300)
    assert float(TOML["env"]["HOLDFAST_GRACE_SEC"]) < TOML["kill_timeout"]


def test_the_command_exists_and_the_image_is_the_one_with_scanners() -> None:
    """The process group is the one that the provider takes for its pool."""
    assert refusal(shlex.split(TOML["processes"]["worker"])) is None
    assert TOML["build"]["build-target"] == "extraction"
    assert (ROOT / "deploy" / TOML["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"


def test_only_settings_that_are_known_and_no_secret() -> None:
    """A secret in [env] could be read by whoever reads the repository."""
    assert not [name for name in TOML["env"] if re.search("KEY|TOKEN|SECRET|PASSWORD|URL", name)]


@pytest.mark.parametrize(
    "step",
    [
        "fly.io/install.sh",
        "fly auth login",
        "fly launch --no-deploy",
        "fly secrets set",
        "fly deploy --config deploy/fly.toml",
        "fly scale count 3",
        "fly machine stop",
        "fly tokens create deploy",
        "90 days",
        "*/5 * * * *",
        "Cost",
        "Checklist",
        "FLY_API_TOKEN",
        "FLY_EXTRACTION_APP",
        "FLY_MAX_BURST_MACHINES",
        "HOLDFAST_MACHINE_PROVIDER=fly",
    ],
)
def test_the_guide_tells(step: str) -> None:
    """Each step that somebody needs from nothing to a running pool."""
    assert step in GUIDE


def test_the_sums_of_the_cost_table_are_right() -> None:
    """Seconds times the rate, to the cent."""
    rows = re.findall(r"\| ([\d,]+) s \| \$([\d.,]+) \|", GUIDE)
    assert len(rows) >= 4
    for seconds, dollars in rows:
        assert f"{int(seconds.replace(',', '')) * DOLLARS_PER_SECOND:,.2f}" == dollars


def test_settings_of_the_guide_exist() -> None:
    """Those of this part; the others are the machine settings."""
    known = {variable for field in Settings.__dataclass_fields__.values() for variable in _variables(field)}
    for variable in re.findall(r"HOLDFAST_FLY_[A-Z_]+", GUIDE):
        assert variable in known, variable


def _variables(field: Any) -> tuple[str, ...]:
    rule = field.metadata.get("rule")
    return rule.env if rule else ()
