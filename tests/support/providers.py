"""Providers with the servers that they talk to. A provider joins the conformance suite by one line in STAGES."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.machines.cluster import Cluster
from holdfast.machines.fly import FlyProvider
from holdfast.machines.fly_options import FlyOptions
from holdfast.machines.kubernetes import KubernetesOptions, KubernetesProvider
from holdfast.machines.protocol import Provider
from tests.support import fake_fly, fake_kubernetes
from tests.support.fake_fly import FakeFly
from tests.support.fake_http import MovedTime
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.local_machines import end, sleeping_machines

FLY = FlyOptions(
    app=fake_fly.APP, image="registry.fly.io/scans:v1", regions=("iad", "ewr"), env={"HOLDFAST_EXIT_WHEN_IDLE_SEC": "60"}
)
KUBERNETES = KubernetesOptions(image="registry.example/scans:v1", env_from="holdfast", cpu="8", memory="64Gi")


class Stage(NamedTuple):
    """A provider, and how a test makes the worker on one of its machines end by itself."""

    provider: Provider
    exit: Callable[[str], object]


class Fly(NamedTuple):
    provider: FlyProvider
    fake: FakeFly
    time: MovedTime


class Kubernetes(NamedTuple):
    provider: KubernetesProvider
    fake: FakeKubernetes
    time: MovedTime


@asynccontextmanager
async def fly_stage(**more: Any) -> AsyncIterator[Fly]:
    time = MovedTime()
    fake = FakeFly(time)
    options, timeout = more.pop("options", FLY), more.pop("timeout", 60.0)
    provider = FlyProvider(
        options, fake_fly.TOKEN, base_url=fake.api, timeout=timeout, sleep=time.sleep, monotonic=time, **more
    )
    try:
        yield Fly(provider, fake, time)
    finally:
        await provider.aclose()
        fake.close()
    assert fake.violations == [], "every request is as the API's description says"


@asynccontextmanager
async def kubernetes_stage() -> AsyncIterator[Kubernetes]:
    time = MovedTime()
    fake = FakeKubernetes()
    cluster = Cluster(url=fake.url, namespace=fake_kubernetes.NAMESPACE, token=lambda: fake_kubernetes.TOKEN)
    provider = KubernetesProvider(KUBERNETES, cluster, timeout=60.0, sleep=time.sleep, monotonic=time)
    try:
        yield Kubernetes(provider, fake, time)
    finally:
        await provider.aclose()
        fake.close()
    assert fake.violations == [], "every object is as the published models say"


@asynccontextmanager
async def _fly() -> AsyncIterator[Stage]:
    async with fly_stage() as made:
        yield Stage(made.provider, made.fake.exit)


@asynccontextmanager
async def _kubernetes() -> AsyncIterator[Stage]:
    async with kubernetes_stage() as made:
        yield Stage(made.provider, made.fake.finish)


@asynccontextmanager
async def _local() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory() as folder:
        async with sleeping_machines(Path(folder)) as provider:
            yield Stage(provider, lambda name: end(Path(folder), name))


STAGES: dict[str, Callable[[], AbstractAsyncContextManager[Stage]]] = {
    "local": _local,
    "fly": _fly,
    "kubernetes": _kubernetes,
}
