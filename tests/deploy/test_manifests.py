"""The Kubernetes manifests against the published models; KEDA's query on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from tests.support.deployment import documents, refusal
from tests.support.kubernetes_models import differences, model, problems

FILES = ["deploy/kubernetes/holdfast.yaml", "deploy/kubernetes/secret.example.yaml"]
PLAIN = [one for file in FILES for one in documents(file)]
KEDA = {one["kind"]: one for one in documents("deploy/kubernetes/keda.yaml")}
SCALED: dict[str, Any] = KEDA["ScaledJob"]["spec"]


def pods() -> Iterator[dict[str, Any]]:
    yield SCALED["jobTargetRef"]["template"]["spec"]
    yield from (one["spec"]["template"]["spec"] for one in PLAIN if one["kind"] in ("Job", "Deployment"))


@pytest.mark.parametrize("manifest", PLAIN, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_fits_its_model(manifest: dict[str, Any]) -> None:
    """No unknown field, no wrong type, nothing missing."""
    assert problems(manifest) == []


def test_the_job_inside_the_scaled_job_fits_its_model() -> None:
    """KEDA takes a batch/v1 JobSpec."""
    assert list(differences(SCALED["jobTargetRef"], model("batch_v1", "JobSpec"), "jobTargetRef")) == []


def test_workers_of_keda_end_and_are_not_ended() -> None:
    """Four hours, no retries, and a new version of the file lets running ones finish."""
    job = SCALED["jobTargetRef"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 14_400)
    assert SCALED["rollout"] == {"strategy": "gradual"}
    assert SCALED["minReplicaCount"] == 0


def test_a_process_of_a_deployment_that_ends_with_an_error_is_started_again() -> None:
    """As one does that its watchdog has ended; a worker of KEDA is replaced by another Job."""
    policies = [one["spec"]["template"]["spec"].get("restartPolicy", "Always") for one in PLAIN if one["kind"] == "Deployment"]
    assert policies == ["Always", "Always"]


def test_the_worker_drains_before_its_pod_and_its_job_end() -> None:
    """Grace and lifetime of the worker are shorter than what the cluster gives."""
    pod = SCALED["jobTargetRef"]["template"]["spec"]
    container = pod["containers"][0]
    arguments = container["args"]
    assert int(arguments[arguments.index("--grace") + 1]) < pod["terminationGracePeriodSeconds"]
    lifetime = next(int(one["value"]) for one in container["env"] if one["name"] == "HOLDFAST_MAX_LIFETIME_SEC")
    assert lifetime + pod["terminationGracePeriodSeconds"] < SCALED["jobTargetRef"]["activeDeadlineSeconds"]


def test_every_command_exists() -> None:
    """With all its options."""
    commands = [container["args"] for pod in pods() for container in pod["containers"]]
    assert {command[0] for command in commands} == {"worker", "migrate", "server", "reaper"}
    assert [refusal(command) for command in commands if refusal(command)] == []


def test_nobody_is_root() -> None:
    """And nobody may become it."""
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_role_allows_what_the_provider_does() -> None:
    """Each call of the provider needs one of these verbs, and there is no other."""
    (role,) = [one for one in PLAIN if one["kind"] == "Role"]
    allowed = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert allowed == {"jobs": {"get", "list", "create", "patch", "delete"}, "pods": {"list", "deletecollection"}}


def test_the_strategy_fits_the_query() -> None:
    """`accurate` takes off what is pending only: the query must not count jobs that a worker has already."""
    (trigger,) = SCALED["triggers"]
    assert SCALED["scalingStrategy"] == {"strategy": "accurate"}
    assert trigger["type"] == "postgresql"
    assert "j.state = 'queued'" in trigger["metadata"]["query"]
    arguments = SCALED["jobTargetRef"]["template"]["spec"]["containers"][0]["args"]
    assert trigger["metadata"]["targetQueryValue"] == arguments[arguments.index("--concurrency") + 1]
    reference = KEDA["TriggerAuthentication"]["spec"]["secretTargetRef"][0]
    secrets = {one["metadata"]["name"]: one["stringData"] for one in PLAIN if one["kind"] == "Secret"}
    assert reference["key"] in secrets[reference["name"]]


# -- the query ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Holdfast]:
    hf = Holdfast(postgres_url)

    @hf.task(name="extract", queue="extraction")
    async def extract() -> None: ...

    @hf.task(name="other", queue="other")
    async def other() -> None: ...

    yield hf
    await hf.aclose()


async def wanted(url: str) -> int:
    """What KEDA would read: one number, never null."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(SCALED["triggers"][0]["metadata"]["query"])
    finally:
        await connection.close()
    ((number,),) = rows
    assert isinstance(number, int)
    return number


async def run_sql(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.case("C38")
async def test_the_query_counts_what_may_run_now(app: Holdfast, postgres_url: str) -> None:
    """Ten jobs of a free tenant count one; delayed ones, other queues and running ones do not count."""
    extract, other = app.tasks["extract"], app.tasks["other"]
    assert await wanted(postgres_url) == 0
    for _ in range(10):
        await extract.options(tenant="free").enqueue()
    assert await wanted(postgres_url) == 1
    await app.tenants.set("pro", plan="pro")
    for _ in range(4):
        await extract.options(tenant="pro").enqueue()
    for _ in range(3):
        await extract.enqueue()
    await other.enqueue()
    await extract.options(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    assert await wanted(postgres_url) == 1 + 4 + 3


async def test_the_query_leaves_out_what_is_claimed(app: Holdfast, postgres_url: str) -> None:
    """A tenant that runs what it may needs no more workers, whatever waits."""
    for _ in range(3):
        await app.tasks["extract"].options(tenant="free").enqueue()
    claim = "UPDATE holdfast.jobs SET state = 'running', locked_by = 'w' WHERE seq = (SELECT min(seq) FROM holdfast.jobs)"
    await run_sql(postgres_url, claim)
    assert await wanted(postgres_url) == 0


async def test_the_query_knows_delays_that_are_over_pauses_and_limits_of_the_queue(app: Holdfast, postgres_url: str) -> None:
    """What is due counts although nobody has looked yet; what is paused does not; a queue's limit is the most."""
    for _ in range(5):
        await app.tasks["extract"].enqueue()
    await run_sql(postgres_url, "UPDATE holdfast.jobs SET hold = 'time', run_at = now() - interval '1 second'")
    assert await wanted(postgres_url) == 5
    await app.queues.set("extraction", limit=2)
    assert await wanted(postgres_url) == 2
    await app.queues.pause("extraction")
    assert await wanted(postgres_url) == 0
    await app.queues.resume("extraction")
    await app.queues.set("extraction", limit=None)
    await app.tasks["extract"].options(tenant="free").enqueue()
    assert await wanted(postgres_url) == 6
    await app.tenants.pause("free")
    assert await wanted(postgres_url) == 5
