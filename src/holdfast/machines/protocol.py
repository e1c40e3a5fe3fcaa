"""What a provider of machines can do, and how it may fail. Local processes, Fly Machines and Kubernetes Jobs speak it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

Kind = Literal["pool", "burst"]
"""A pool machine is stopped and started again; a burst machine is made for a rush and removes itself when it exits."""


class MachineState(StrEnum):
    """What a provider says of a machine, in our words. What we do not understand is `unknown`: never taken for running, and
    never a reason to make another."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # can be started: also what is created or suspended
    GONE = "gone"
    UNKNOWN = "unknown"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: MachineState
    kind: Kind
    region: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    reachable: bool = True
    """False where the provider says that the host below it does not answer: neither started nor counted on."""
    said: str = ""
    """The provider's own word for the state."""


class Provider(Protocol):
    """One place where machines live. Every verb may be called again after a lost answer: what is done already is no error."""

    name: str

    async def list(self) -> list[Machine]:
        """All machines of this pool; may lag behind what was just created."""
        ...

    async def create(self, name: str, kind: Kind) -> Machine:
        """Make and start one. The same name again answers the machine that has it: a name is never doubled."""
        ...

    async def start(self, machine_id: str) -> None: ...

    async def stop(self, machine_id: str) -> None:
        """Ask it to end (SIGTERM); its worker drains."""
        ...

    async def destroy(self, machine_id: str) -> None:
        """End it now and remove it; a machine that is gone is no error."""
        ...

    async def aclose(self) -> None: ...


class ProviderError(Exception):
    """A provider did not do what it was asked. `request_id` is the provider's own, for its support."""

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class ProviderDown(ProviderError):
    """Network, time-out or 5xx, after all retries."""


class ProviderBusy(ProviderError):
    """Too many requests, still after waiting as long as it asked for."""


class ProviderDenied(ProviderError):
    """401 or 403: the token is wrong or may not do this. Nobody retries; somebody has to mend it."""


class QuotaReached(ProviderError):
    """The account may have no more machines. Not a matter of the token, nor of this host."""


class NoCapacity(ProviderError):
    """No room on this host or in this region: another machine or region may work."""


class StartRefused(ProviderError):
    """This one machine cannot be started; another one may."""
