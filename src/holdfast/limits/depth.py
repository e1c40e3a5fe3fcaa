"""How many jobs a tenant may have waiting: asked at the door, before anything is written.

The backlog is counted at most once a second per tenant and process, and what this process adds is reckoned in between. Several
processes may therefore let a tenant overshoot by what they accept within a second: limits on running jobs are exact, this
one keeps a flood out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from holdfast.errors import QueueFull
from holdfast.store.protocol import Depth

FRESH_SECONDS = 1.0
TENANTS_KNOWN_MAX = 10_000


class DepthGuard:
    """Knows; whoever enqueues does the asking, on whichever connection it has."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Depth]] = {}

    def unknown(self, tenants: Iterable[str | None]) -> list[str]:
        """Those to ask about first."""
        now = time.monotonic()
        if len(self._known) > TENANTS_KNOWN_MAX:
            self._known.clear()
        asked = {tenant for tenant in tenants if tenant is not None}
        return [tenant for tenant in asked if tenant not in self._known or now - self._known[tenant][0] > FRESH_SECONDS]

    def learn(self, depths: dict[str, Depth]) -> None:
        now = time.monotonic()
        self._known.update({tenant: (now, depth) for tenant, depth in depths.items()})

    def admit(self, tenants: Iterable[str | None]) -> None:
        """One mention per job. Raises QueueFull if a tenant would have more waiting than it may; then none is admitted."""
        wanted = Counter(tenant for tenant in tenants if tenant is not None and tenant in self._known)
        for tenant, more in wanted.items():
            depth = self._known[tenant][1]
            if depth.queued + more > depth.most:
                raise QueueFull(
                    f"Tenant {tenant} has {depth.queued:,} jobs waiting and may have {depth.most:,}, "
                    f"so {more:,} more were refused; "
                    "wait until some have run, or raise the queue depth of the tenant or its plan."
                )
        for tenant, more in wanted.items():
            self._known[tenant][1].queued += more
