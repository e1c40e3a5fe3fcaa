"""What the settings say about machines in a cloud, for the providers that make them."""

from __future__ import annotations

from typing import Protocol


class MachineSettings(Protocol):
    """The part of `Settings` that all clouds read."""

    @property
    def machine_image(self) -> str | None: ...
    @property
    def machine_concurrency(self) -> int: ...
    @property
    def machine_idle(self) -> float: ...
    @property
    def machine_lifetime(self) -> float: ...


def worker_command(settings: MachineSettings) -> list[str]:
    """For an image whose entry point is `holdfast`, as that of our Dockerfile is."""
    return ["worker", "--concurrency", str(settings.machine_concurrency)]


def worker_env(settings: MachineSettings) -> dict[str, str]:
    """Nothing secret: it can be read by whoever can look at the machine."""
    return {
        "HOLDFAST_EXIT_WHEN_IDLE_SEC": f"{settings.machine_idle:g}",
        "HOLDFAST_MAX_LIFETIME_SEC": f"{settings.machine_lifetime:g}",
    }
