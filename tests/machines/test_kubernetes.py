"""Kubernetes Jobs: what is sent, what the cluster says about it, and where the cluster is."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.errors import ConfigError
from holdfast.machines.cluster import find_cluster, from_kubeconfig, from_service_account
from holdfast.machines.kubernetes import LABEL_POOL, KubernetesProvider
from holdfast.machines.protocol import (
    Machine,
    MachineState,
    ProviderBusy,
    ProviderDenied,
    ProviderDown,
    ProviderError,
    QuotaReached,
    StartRefused,
)
from tests.support import fake_kubernetes
from tests.support.fake_http import Accident, Reply
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.kubernetes_models import problems
from tests.support.providers import KUBERNETES, Kubernetes

# -- what is sent ------------------------------------------------------------------------------------------------------


async def test_a_job_ends_by_itself_and_is_forgotten(kubernetes: Kubernetes) -> None:
    """Four hours at most, no retries of its own, and gone some minutes after its end."""
    await kubernetes.provider.create("hold-1", "burst")
    job = kubernetes.fake.requests[0].body
    spec = job["spec"]
    limits = spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"], spec["backoffLimit"]
    assert limits == (14_400, 600, 0)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert job["metadata"]["labels"][LABEL_POOL] == spec["template"]["metadata"]["labels"][LABEL_POOL] == "holdfast"
    assert job["metadata"]["namespace"] == "jobs"


async def test_a_worker_knows_its_machine_and_gets_its_secrets_from_the_cluster(kubernetes: Kubernetes) -> None:
    """The name of the Job is the id of the machine in the database; no secret is in the Job."""
    await kubernetes.provider.create("hold-1", "burst")
    (container,) = kubernetes.fake.requests[0].body["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "HOLDFAST_MACHINE_ID", "value": "hold-1"}]
    assert container["envFrom"] == [{"secretRef": {"name": "holdfast"}}]
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}


async def test_pods_do_not_outlive_their_job(kubernetes: Kubernetes) -> None:
    """Without a policy the API would remove the Job and leave its pods running."""
    await kubernetes.provider.create("hold-1", "burst")
    await kubernetes.provider.list()
    await kubernetes.provider.destroy("hold-1")
    assert kubernetes.fake.pods == {}
    assert (
        kubernetes.fake.sent("DELETE /apis/batch/v1/namespaces/jobs/jobs/hold-1")[0].body["propagationPolicy"] == "Background"
    )


async def test_stop_lets_the_worker_drain(kubernetes: Kubernetes) -> None:
    """The Job stays visible as stopping until its pod has ended."""
    await kubernetes.provider.create("hold-1", "burst")
    await kubernetes.provider.list()
    await kubernetes.provider.stop("hold-1")
    (machine,) = await kubernetes.provider.list()
    assert machine.state is MachineState.STOPPING


def test_the_models_notice_a_field_that_does_not_exist() -> None:
    """The check behind the fake can fail."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backofLimit": 0, "template": {}, "completions": "1"}}
    assert problems(job) == ["Job.spec has no field backofLimit", "Job.spec.completions is '1', not int"]


# -- conflicts and lost answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("accident", [Accident.LOST, Accident.BROKE])
async def test_a_create_whose_answer_is_lost_makes_one_job(kubernetes: Kubernetes, accident: Accident) -> None:
    """The second try meets a conflict, and that is the machine."""
    kubernetes.fake.fail("POST /apis/batch/v1/namespaces/jobs/jobs", accident)
    machine = await kubernetes.provider.create("hold-1", "burst")
    assert (machine.id, list(kubernetes.fake.jobs)) == ("hold-1", ["hold-1"])


async def test_a_job_that_ended_gives_its_name_to_the_next(kubernetes: Kubernetes) -> None:
    """A Job that is only kept to be looked at does not block a new machine for ten minutes."""
    await kubernetes.provider.create("hold-1", "burst")
    first = kubernetes.fake.jobs["hold-1"]["metadata"]["uid"]
    kubernetes.fake.finish("hold-1", condition="Failed", reason="DeadlineExceeded")
    machine = await kubernetes.provider.create("hold-1", "burst")
    assert machine.state is MachineState.STARTING
    assert kubernetes.fake.jobs["hold-1"]["metadata"]["uid"] != first


async def test_a_job_of_somebody_else_is_not_adopted(kubernetes: Kubernetes) -> None:
    """The namespace may hold other Jobs."""
    await kubernetes.provider.create("hold-1", "burst")
    kubernetes.fake.jobs["hold-1"]["metadata"]["labels"] = {}
    with pytest.raises(ProviderError, match="somebody else"):
        await kubernetes.provider.create("hold-1", "burst")
    assert await kubernetes.provider.list() == []


async def test_a_job_that_was_suspended_is_started(kubernetes: Kubernetes) -> None:
    """Somebody suspended it by hand: it reads as stopped, and start lets it go on."""
    await kubernetes.provider.create("hold-1", "pool")
    kubernetes.fake.jobs["hold-1"]["spec"]["suspend"] = True
    (machine,) = await kubernetes.provider.list()
    assert machine.state is MachineState.STOPPED
    await kubernetes.provider.start("hold-1")
    assert kubernetes.fake.jobs["hold-1"]["spec"]["suspend"] is False


async def test_a_job_that_ended_cannot_be_started(kubernetes: Kubernetes) -> None:
    """The message says to make another."""
    await kubernetes.provider.create("hold-1", "pool")
    kubernetes.fake.finish("hold-1")
    with pytest.raises(StartRefused, match="make another"):
        await kubernetes.provider.start("hold-1")


# -- states ------------------------------------------------------------------------------------------------------------

WAITING = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}


@pytest.mark.parametrize(
    ("pod", "state", "said"),
    [
        ({"phase": "Pending", "conditions": []}, MachineState.STARTING, "Pending"),
        (WAITING, MachineState.UNKNOWN, "ImagePullBackOff"),
        ({"phase": "Running"}, MachineState.RUNNING, "Running"),
        ({"phase": "Succeeded"}, MachineState.STOPPING, "Succeeded"),
        ({"phase": "Failed"}, MachineState.STOPPING, "Failed"),
        ({"phase": "Unknown"}, MachineState.UNKNOWN, "NodeLost"),
        ({"phase": "Dreaming"}, MachineState.UNKNOWN, "Dreaming"),
        ({}, MachineState.UNKNOWN, ""),
    ],
)
async def test_the_pod_says_how_far_a_machine_is(kubernetes: Kubernetes, pod: Any, state: MachineState, said: str) -> None:
    """What we do not know, and what will not start without help, is never taken for running."""
    machine = await _with_pod(kubernetes, pod)
    assert (machine.state, machine.said, machine.reachable) == (state, said, said != "NodeLost")


async def _with_pod(kubernetes: Kubernetes, status: Any) -> Machine:
    await kubernetes.provider.create("hold-1", "burst")
    await kubernetes.provider.list()
    kubernetes.fake.pods["hold-1"]["status"] = status
    (machine,) = await kubernetes.provider.list()
    return machine


# -- refusals ----------------------------------------------------------------------------------------------------------

CREATE = "POST /apis/batch/v1/namespaces/jobs/jobs"


@pytest.mark.parametrize(
    ("reply", "error", "tries"),
    [
        (fake_kubernetes.UNAUTHORIZED, ProviderDenied, 1),
        (fake_kubernetes.FORBIDDEN, ProviderDenied, 1),
        (fake_kubernetes.QUOTA, QuotaReached, 1),
        (fake_kubernetes.INVALID, ProviderError, 1),
        (fake_kubernetes.UNAVAILABLE, ProviderDown, 4),
        (Accident.CUT, ProviderDown, 4),
        (fake_kubernetes.TOO_MANY, ProviderBusy, 4),
    ],
    ids=["401", "403", "quota", "422", "503", "network", "429"],
)
async def test_each_refusal_is_told_as_what_it_is(
    kubernetes: Kubernetes, reply: Reply | Accident, error: type[ProviderError], tries: int
) -> None:
    """Who reacts differently gets a different error, and only what may pass is sent again."""
    kubernetes.fake.fail(CREATE, *[reply] * 4)
    with pytest.raises(ProviderError) as told:
        await kubernetes.provider.create("hold-1", "burst")
    assert (type(told.value), len(kubernetes.fake.sent(CREATE))) == (error, tries)
    assert kubernetes.fake.jobs == {}


async def test_429_waits_as_long_as_it_says(kubernetes: Kubernetes) -> None:
    """The cluster's own Retry-After is kept."""
    kubernetes.fake.fail(CREATE, fake_kubernetes.TOO_MANY)
    await kubernetes.provider.create("hold-1", "burst")
    assert kubernetes.time.slept == [1.0]


async def test_the_token_is_in_no_log_and_no_error(kubernetes: Kubernetes, caplog: pytest.LogCaptureFixture) -> None:
    """Even when the server repeats it."""
    caplog.set_level(logging.DEBUG)
    kubernetes.fake.fail(CREATE, fake_kubernetes.status(403, "Forbidden", f"token {fake_kubernetes.TOKEN} may not"))
    with pytest.raises(ProviderDenied) as told:
        await kubernetes.provider.create("hold-1", "burst")
    assert fake_kubernetes.TOKEN not in caplog.text + str(told.value)
    assert told.value.request_id == "audit-1" and "audit-1" in caplog.text


# -- where the cluster is ----------------------------------------------------------------------------------------------


def kubeconfig(path: Path, *, cluster: Any = None, user: Any = None, namespace: str | None = "team") -> Path:
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    document = {
        "current-context": "here",
        "contexts": [{"name": "there", "context": {}}, {"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:9/"}}],
        "users": [{"name": "u", "user": user or {"token": "from-the-file"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_kubeconfig_names_server_namespace_and_token(tmp_path: Path) -> None:
    """Of its current context."""
    found = from_kubeconfig(kubeconfig(tmp_path / "config"))
    assert (found.url, found.namespace, found.token()) == ("http://127.0.0.1:9", "team", "from-the-file")
    assert from_kubeconfig(kubeconfig(tmp_path / "config", namespace=None)).namespace == "default"
    assert from_kubeconfig(kubeconfig(tmp_path / "config"), namespace="mine").namespace == "mine"


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Tokens of service accounts are replaced every hour; a provider lives longer."""
    fake = FakeKubernetes()
    (tmp_path / "token").write_text(fake.token)
    cluster = {"server": fake.url}
    found = from_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster, user={"tokenFile": "token"}, namespace="jobs"))
    provider = KubernetesProvider(KUBERNETES, found)
    try:
        assert await provider.list() == []
        fake.token = "the-next-token"
        (tmp_path / "token").write_text("the-next-token\n")
        assert await provider.list() == []
    finally:
        await provider.aclose()
        fake.close()


def test_a_pod_finds_its_own_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the files of its service account and two variables."""
    import certifi

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "ca.crt").write_bytes(Path(certifi.where()).read_bytes())
    (tmp_path / "token").write_text("mounted\n")
    (tmp_path / "namespace").write_text("jobs\n")
    found = from_service_account(tmp_path)
    assert (found.url, found.namespace, found.token()) == ("https://[fd00::1]:6443", "jobs", "mounted")
    (tmp_path / "token").unlink()
    assert found.token() is None, "away for a moment: the cluster will say 401"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user": {"exec": {"command": "aws"}}}, "from a program"),
        ({"cluster": {"server": "ftp://x"}}, "no server"),
        ({"cluster": {"server": "https://x", "certificate-authority-data": "%%%"}}, "certificate"),
        ({"cluster": {"server": "https://x", "certificate-authority-data": ""}}, "certificate"),
        ({"cluster": {"server": "https://x", "certificate-authority": "not-there.crt"}}, "certificate"),
        ({"user": {"client-certificate-data": base64.b64encode(b"x").decode()} | {"client-key-data": "eA=="}}, None),
    ],
)
def test_a_kubeconfig_that_cannot_work_says_why(tmp_path: Path, changes: Any, words: str | None) -> None:
    """Before anything is sent, and without its secrets."""
    if words is None:
        changes, words = changes | {"cluster": {"server": "https://x"}}, "certificate"
    with pytest.raises(ConfigError, match=words):
        from_kubeconfig(kubeconfig(tmp_path / "config", **changes))


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "current-context: nowhere"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Found by KUBECONFIG, refused by its name."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match="config"):
        find_cluster()


def test_a_missing_service_account_says_what_to_do(tmp_path: Path) -> None:
    """Mount it, or give a kubeconfig."""
    with pytest.raises(ConfigError, match="mount it"):
        from_service_account(tmp_path)
