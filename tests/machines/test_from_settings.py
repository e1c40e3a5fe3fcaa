"""The providers as the settings ask for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.machines import fly, kubernetes
from holdfast.settings import load_settings
from tests.support.fake_fly import FakeFly
from tests.support.fake_http import MovedTime


def settings(**changes: Any) -> Any:
    """What `Settings` has of machines, beside what this file checks of the real ones."""
    ours = load_settings()
    machine = {"machine_image": "scans:v1", "machine_concurrency": 2, "machine_idle": 60.0, "machine_lifetime": 14_400.0}
    cloud = {name: getattr(ours, name) for name in dir(ours) if name.startswith(("fly_", "kubernetes_"))}
    return SimpleNamespace(**{**cloud, **machine, "fly_api_token": "t" * 20, "fly_app": "scans", **changes})


async def test_fly_machines_are_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, regions, command and how long a worker idles and lives."""
    fake = FakeFly(MovedTime())
    monkeypatch.setenv("HOLDFAST_FLY_API_URL", fake.api)
    monkeypatch.setenv("HOLDFAST_FLY_REGIONS", "ewr,iad")
    monkeypatch.setenv("HOLDFAST_FLY_SIZE", "shared-4x")
    monkeypatch.setenv("HOLDFAST_FLY_MEMORY_MB", "1024")
    provider = fly.from_settings(settings(fly_api_token="fm2_a-deploy-token-of-the-fake-app"))
    try:
        machine = await provider.create("burst-1", "burst")
    finally:
        await provider.aclose()
        fake.close()
    config = fake.machines[machine.id]["config"]
    assert machine.region == "ewr"
    assert config["guest"] == {"cpu_kind": "shared", "cpus": 4, "memory_mb": 1024}
    assert config["init"] == {"cmd": ["worker", "--concurrency", "2"]}
    assert config["env"] == {"HOLDFAST_EXIT_WHEN_IDLE_SEC": "60", "HOLDFAST_MAX_LIFETIME_SEC": "14400"}
    assert fake.violations == []


@pytest.mark.parametrize("missing", ["fly_api_token", "fly_app"])
def test_fly_without_token_or_app_says_which_variable_to_set(missing: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=r"set FLY_(API_TOKEN|EXTRACTION_APP)\."):
        fly.from_settings(settings(**{missing: None}))


def test_kubernetes_without_an_image_says_so() -> None:
    """A Job cannot take it from a machine that was there before."""
    with pytest.raises(ConfigError, match="HOLDFAST_MACHINE_IMAGE"):
        kubernetes.from_settings(settings(machine_image=None))


def test_kubernetes_reads_its_cluster_from_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a cluster; the namespace of the settings wins."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HOLDFAST_KUBERNETES_NAMESPACE", "jobs")
    (tmp_path / "config").write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
    )
    provider = kubernetes.from_settings(settings())
    assert provider.name == "kubernetes"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HOLDFAST_FLY_REGIONS", "iad, ewr"), ("HOLDFAST_FLY_SIZE", "huge"), ("HOLDFAST_FLY_MEMORY_MB", "64 GB")],
)
def test_a_wrong_value_is_refused_at_the_start_by_name(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the first machine is needed."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable):
        load_settings()
