"""What a Fly machine of ours is, and what the settings say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.machines.wanted import MachineSettings, worker_command, worker_env


class FlyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine of this pool is. Secrets belong into the Fly app (`fly secrets set`), never in here."""

    app: str
    image: str | None = None
    """None: the image that the pool's newest machine runs, that is what was deployed."""
    regions: Sequence[str] = ("iad",)
    """The first one first; the next one when there is no room."""
    cpu_kind: str = "performance"
    cpus: int = 8
    memory_mb: int = 65_536
    command: Sequence[str] | None = None
    """None: what the image runs."""
    env: Mapping[str, str] = {}
    process_group: str = "worker"
    """Machines that `fly deploy` made for this process group belong to the pool as well."""
    pool: str = "holdfast"


class FlySettings(MachineSettings, Protocol):
    @property
    def fly_api_token(self) -> str | None: ...
    @property
    def fly_app(self) -> str | None: ...
    @property
    def fly_regions(self) -> str | None: ...
    @property
    def fly_size(self) -> str | None: ...
    @property
    def fly_memory_mb(self) -> int: ...
    @property
    def fly_api_url(self) -> str | None: ...


def fly_options(settings: FlySettings, app: str) -> FlyOptions:
    cpu_kind, _, size = (settings.fly_size or "performance-8x").partition("-")
    return FlyOptions(
        app=app,
        image=settings.machine_image,
        regions=(settings.fly_regions or "iad").split(","),
        cpu_kind=cpu_kind,
        cpus=int(size.removesuffix("x")),
        memory_mb=settings.fly_memory_mb,
        command=worker_command(settings),
        env=worker_env(settings),
    )
