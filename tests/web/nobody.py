"""An authenticator for tests of what has a door of its own."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Unauthenticated
from holdfast.web.access import Caller, Role


class Nobody:
    """Knows nobody."""

    async def caller_of(self, request: Any, throttled: Any = None) -> Caller:
        raise Unauthenticated("Nobody is named in this request.")

    async def still(self, caller: Caller, request: Any = None) -> bool:
        return False


class Always(Nobody):
    """Everybody is this one."""

    def __init__(self, role: Role, tenant: str | None = None) -> None:
        self._caller = Caller(tenant, role, "test")

    async def caller_of(self, request: Any, throttled: Any = None) -> Caller:
        return self._caller
