"""Kubernetes Jobs, one per machine. A Job that ended is gone; nothing is kept stopped, because a new Job costs nothing.

The cluster itself ends a machine that lives too long (`activeDeadlineSeconds`) and forgets those that ended
(`ttlSecondsAfterFinished`). Retries belong to the queue, so a Job has none (`backoffLimit: 0`). A Job's name is never
doubled: a conflict says that it is there already.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from holdfast.errors import ConfigError
from holdfast.machines.calls import Answer, Calls, Sleep, need_httpx, time_of
from holdfast.machines.cluster import Cluster, find_cluster
from holdfast.machines.protocol import (
    Kind,
    Machine,
    MachineState,
    ProviderDenied,
    ProviderError,
    QuotaReached,
    StartRefused,
)
from holdfast.machines.wanted import MachineSettings, worker_command, worker_env
from holdfast.redact import REDACTED

if TYPE_CHECKING:
    import httpx

LABEL_POOL = "holdfast/pool"
LABEL_KIND = "holdfast/kind"
_NAME_FREE_TRIES = 10
_STUCK = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
"""A container that waits for one of these does not start until somebody mends something."""


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine of this pool is. Secrets come from a Secret of the cluster (`env_from`), never from here."""

    image: str
    command: Sequence[str] | None = None
    """None: what the image runs."""
    env: Mapping[str, str] = {}
    env_from: str | None = None
    """A Secret with HOLDFAST_DATABASE_URL and the like."""
    service_account: str | None = None
    cpu: str | None = None
    memory: str | None = None
    life_seconds: int = 14_400
    keep_seconds: int = 600
    """How long a Job that ended can still be looked at."""
    grace_seconds: int = 120
    pool: str = "holdfast"


class KubernetesSettings(MachineSettings, Protocol):
    @property
    def kubernetes_namespace(self) -> str | None: ...
    @property
    def kubernetes_secret(self) -> str | None: ...
    @property
    def kubernetes_cpu(self) -> str | None: ...
    @property
    def kubernetes_memory(self) -> str | None: ...


def from_settings(settings: KubernetesSettings) -> KubernetesProvider:
    if not settings.machine_image:
        raise ConfigError("the machine provider kubernetes needs the image that machines run: set HOLDFAST_MACHINE_IMAGE.")
    options = KubernetesOptions(
        image=settings.machine_image,
        command=worker_command(settings),
        env=worker_env(settings),
        env_from=settings.kubernetes_secret,
        cpu=settings.kubernetes_cpu,
        memory=settings.kubernetes_memory,
        life_seconds=int(settings.machine_lifetime),
    )
    return KubernetesProvider(options, find_cluster(namespace=settings.kubernetes_namespace))


class KubernetesProvider:
    name = "kubernetes"

    def __init__(
        self,
        options: KubernetesOptions,
        cluster: Cluster,
        *,
        timeout: float = 30.0,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        need_httpx("kubernetes")
        self._options = options
        self._cluster = cluster
        self._jobs = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{cluster.namespace}/pods"

        def client() -> httpx.AsyncClient:
            import httpx

            return httpx.AsyncClient(base_url=cluster.url, verify=cluster.tls or True, timeout=timeout, trust_env=False)

        self._calls = Calls(
            "kubernetes",
            client,
            clean=self._clean,
            request_id_header="audit-id",
            headers=self._credentials,
            sleep=sleep,
            now=monotonic,
        )

    async def aclose(self) -> None:
        await self._calls.aclose()

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def list(self) -> list[Machine]:
        ours = {"labelSelector": f"{LABEL_POOL}={self._options.pool}"}
        jobs = await self._items(self._jobs, ours)
        pods = defaultdict(list)
        for pod in await self._items(self._pods, ours):
            pods[_labels(pod).get("job-name", "")].append(pod)
        machines = [_machine(job, pods[job["metadata"]["name"]]) for job in jobs]
        return [machine for machine in machines if machine.state is not MachineState.GONE]

    async def create(self, name: str, kind: Kind) -> Machine:
        for tries_left in reversed(range(_NAME_FREE_TRIES)):
            answer = await self._calls.send("POST", self._jobs, body=self._job(name, kind))
            if answer.ok:
                return _machine(answer.body, [])
            if answer.status != 409 or answer.code != "AlreadyExists":
                self._refuse(answer, f"machine {name}")
            found = await self._get(name)
            if found is not None:
                machine = _machine(found, [])
                if _labels(found).get(LABEL_POOL) != self._options.pool:
                    raise ProviderError(f"kubernetes: {name} is a Job of somebody else: use another pool name or namespace.")
                if machine.state not in (MachineState.GONE, MachineState.STOPPING):
                    return machine
                if machine.state is MachineState.GONE:  # only kept to be looked at: the new one needs its name
                    await self._delete(name, "Background", uid=found["metadata"].get("uid"))
            if tries_left:
                await self._calls.sleep(1.0)
        self._refuse(answer, f"machine {name}")

    async def start(self, machine_id: str) -> None:
        """A Job runs from the moment it is made, and once it ended it cannot be run again."""
        found = await self._get(machine_id)
        machine = _machine(found, []) if found else None
        if machine is None or machine.state in (MachineState.GONE, MachineState.STOPPING):
            raise StartRefused(f"kubernetes: the Job {machine_id} has ended: make another machine.")
        if machine.state is MachineState.STOPPED:  # suspended by hand or by a quota controller
            content_type = "application/merge-patch+json"
            patch = {"spec": {"suspend": False}}
            answer = await self._calls.send("PATCH", f"{self._jobs}/{machine_id}", body=patch, content_type=content_type)
            if not answer.ok:
                self._refuse(answer, f"start of {machine_id}", machine=True)

    async def stop(self, machine_id: str) -> None:
        """Its pod gets SIGTERM and `grace_seconds`; until that is over the Job reads as stopping."""
        await self._delete(machine_id, "Foreground")

    async def destroy(self, machine_id: str) -> None:
        await self._delete(machine_id, "Background")
        selector = {"labelSelector": f"job-name={machine_id},{LABEL_POOL}={self._options.pool}"}
        answer = await self._calls.send("DELETE", self._pods, params=selector, body={"gracePeriodSeconds": 0})
        if not answer.ok and answer.status != 404:
            self._refuse(answer, f"removal of {machine_id}")

    # -- one request each ----------------------------------------------------------------------------------------------

    async def _items(self, path: str, params: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        answer = await self._calls.send("GET", path, params=params)
        if not answer.ok or not isinstance(answer.body, dict) or not isinstance(answer.body.get("items"), list):
            self._refuse(answer, f"list {path}")
        return [item for item in answer.body["items"] if isinstance(item, dict) and "metadata" in item]

    async def _get(self, name: str) -> dict[str, Any] | None:
        answer = await self._calls.send("GET", f"{self._jobs}/{name}")
        if answer.status == 404:
            return None
        if not answer.ok or not isinstance(answer.body, dict):
            self._refuse(answer, f"look at {name}")
        return answer.body

    async def _delete(self, name: str, propagation: str, uid: str | None = None) -> None:
        """Said out loud: by default the Job would go and leave its pods running."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        answer = await self._calls.send("DELETE", f"{self._jobs}/{name}", body=options)
        if not answer.ok and answer.status != 404 and not (uid and answer.status == 409):
            self._refuse(answer, f"end of {name}")

    def _job(self, name: str, kind: Kind) -> dict[str, Any]:
        options = self._options
        labels = {"app.kubernetes.io/managed-by": "holdfast", LABEL_POOL: options.pool, LABEL_KIND: kind}
        env = {**options.env, "HOLDFAST_MACHINE_ID": name}
        container: dict[str, Any] = {
            "name": "worker",
            "image": options.image,
            "env": [{"name": key, "value": value} for key, value in env.items()],
        }
        if options.command:
            container["args"] = [*options.command]
        if options.env_from:
            container["envFrom"] = [{"secretRef": {"name": options.env_from}}]
        wanted = {key: value for key, value in (("cpu", options.cpu), ("memory", options.memory)) if value}
        if wanted:
            container["resources"] = {"requests": wanted, "limits": wanted}
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": options.grace_seconds,
            "containers": [container],
        }
        if options.service_account:
            pod["serviceAccountName"] = options.service_account
        else:
            pod["automountServiceAccountToken"] = False  # a worker has nothing to ask the cluster
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self._cluster.namespace, "labels": labels},
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": 0,
                "activeDeadlineSeconds": options.life_seconds,
                "ttlSecondsAfterFinished": options.keep_seconds,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    # -- what the cluster says, in our words ---------------------------------------------------------------------------

    def _credentials(self) -> Mapping[str, str]:
        token = self._cluster.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _clean(self, text: str) -> str:
        token = self._cluster.token()
        return text.replace(token, REDACTED) if token else text

    def _refuse(self, answer: Answer, what: str, *, machine: bool = False) -> NoReturn:
        said = f"{answer.status} {answer.words}".strip()
        kind: type[ProviderError] = StartRefused if machine else ProviderError
        hint = ""
        if answer.status == 403 and "exceeded quota" in answer.words.lower():
            kind, hint = QuotaReached, " Raise the ResourceQuota of the namespace, or lower the maximum."
        elif answer.status in (401, 403):
            kind, hint = ProviderDenied, " Give the service account the role of deploy/kubernetes."
        raise kind(f"kubernetes refused the {what}: {said}.{hint}", request_id=answer.request_id)


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _machine(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Machine:
    metadata, status = job["metadata"], job.get("status") or {}
    state, said = _state(job, pods)
    return Machine(
        id=metadata["name"],
        name=metadata["name"],
        state=state,
        kind="pool" if _labels(job).get(LABEL_KIND) == "pool" else "burst",
        created_at=time_of(metadata.get("creationTimestamp")),
        started_at=time_of(status.get("startTime")),
        reachable=said != "NodeLost",
        said=said,
    )


def _state(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> tuple[MachineState, str]:
    """The Job tells of its end, its newest pod of its beginning."""
    status = job.get("status") or {}
    true = {one["type"]: one.get("reason") or "" for one in status.get("conditions") or [] if one.get("status") == "True"}
    for condition in ("Complete", "Failed"):
        if condition in true:
            return MachineState.GONE, true[condition] or condition
    if job["metadata"].get("deletionTimestamp") or "SuccessCriteriaMet" in true or "FailureTarget" in true:
        return MachineState.STOPPING, "Terminating"
    if (job.get("spec") or {}).get("suspend") or "Suspended" in true:
        return MachineState.STOPPED, "Suspended"
    if not pods:
        return (MachineState.RUNNING, "Active") if status.get("ready") else (MachineState.STARTING, "Pending")
    return _state_of_pod(max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))))


def _state_of_pod(pod: Mapping[str, Any]) -> tuple[MachineState, str]:
    status = pod.get("status") or {}
    phase = str(status.get("phase", ""))
    if status.get("reason") == "NodeLost" or phase == "Unknown":
        return MachineState.UNKNOWN, "NodeLost"
    if pod["metadata"].get("deletionTimestamp"):
        return MachineState.STOPPING, "Terminating"
    if phase == "Pending":
        waits = [one.get("state", {}).get("waiting", {}).get("reason") for one in status.get("containerStatuses") or []]
        stuck = next((reason for reason in waits if reason in _STUCK), None)
        return (MachineState.UNKNOWN, stuck) if stuck else (MachineState.STARTING, phase)
    if phase == "Running":
        return MachineState.RUNNING, phase
    if phase in ("Succeeded", "Failed"):  # the Job will say so in a moment
        return MachineState.STOPPING, phase
    return MachineState.UNKNOWN, phase
