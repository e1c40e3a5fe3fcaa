"""Rate limits over HTTP: 429 with Retry-After and X-RateLimit-*, as a dependency; and the limits of the API itself.

Known callers are counted in the database, for all servers together. Failed logins are counted by address and credential, by
each process for itself: a client that goes on with a wrong key is kept off the database, and others at its address are not.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from holdfast.app import Holdfast
from holdfast.errors import RateLimited
from holdfast.limits.rate import Subjects, Taken

NAMES_KNOWN_MAX = 10_000
"""A flood of random credentials takes no more memory than this; the oldest are forgotten."""
CALLERS_KNOWN_MAX = 10_000
API_LIMIT = "api"

WhoTakes = Callable[[Request], Subjects | Awaitable[Subjects]]
"""`{"user": …, "key": …, "tenant": …}` of a request, as far as the limit counts them."""


class TooManyRequests(RateLimited, HTTPException):
    """So that it is a 429 in any application, and a problem in Holdfast's own."""

    def __init__(self, refused: RateLimited) -> None:
        Exception.__init__(self, str(refused))  # the two bases would call each other with what the other one does not take
        self.status_code, self.detail = 429, str(refused)
        self.retry_after, self.headers = refused.retry_after, refused.headers

    __str__ = Exception.__str__


def rate_limit(hf: Holdfast, name: str, who: WhoTakes) -> Callable[[Request, Response], Awaitable[Taken]]:
    """A dependency of FastAPI that takes one from a named limit; answers carry X-RateLimit-* headers."""
    hf.rate.named(name)

    async def take(request: Request, response: Response) -> Taken:
        takes = who(request)
        subjects = await takes if inspect.isawaitable(takes) else takes
        taken = await hf.rate.take(name, **subjects)
        response.headers.update(taken.headers)
        if not taken.allowed:
            try:
                taken.require()
            except RateLimited as refused:
                raise TooManyRequests(refused) from None
        return taken

    return take


_NOTHING = (0, None)


class CallerRate:
    """For every request to Holdfast's own API, once the caller is known.

    The database counts blocks of requests and not each of them, or a request that writes one row would write two: a caller
    of several servers may get a block from each of them before the first is used up."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._known: OrderedDict[str, tuple[int, Taken]] = OrderedDict()
        """By caller: how many are left of the block that this process has taken for him, and how it was taken."""
        self._taking = asyncio.Lock()

    async def take(self, actor: str) -> Taken | None:
        """Raises RateLimited; None where `api_rate` is 0."""
        block = self._hf.rate.api_block
        if not self._hf.settings.api_rate:
            return None
        if not self._known.get(actor, _NOTHING)[0]:
            async with self._taking:  # one at a time: a crowd of requests would take a block each
                if not self._known.get(actor, _NOTHING)[0]:
                    self._known[actor] = (block, (await self._hf.rate.take(API_LIMIT, user=actor)).require())
                    if len(self._known) > CALLERS_KNOWN_MAX:
                        self._known.popitem(last=False)
                return self._one_of(actor)
        return self._one_of(actor)

    def _one_of(self, actor: str) -> Taken:
        left, taken = self._known[actor]
        self._known[actor] = (left - 1, taken)
        rate, block = self._hf.settings.api_rate, self._hf.rate.api_block
        return msgspec.structs.replace(taken, limit=rate, remaining=taken.remaining * block + left - 1)


def network_of(address: str) -> str:
    """An IPv6 address by its network: whoever has one has 2^64 of them."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((found.packed[:8] + bytes(8), 64)))
    return address


class TokenBuckets:
    """In this process only. Who was not seen for longest is forgotten when there are too many."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._per_second = per_minute / 60
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Seconds until one could be taken; takes none."""
        now = self._clock()
        left, seen = self._known.get(name, (self._most, now))
        return max(0.0, (1 - left) / self._per_second - (now - seen))

    def take(self, name: str) -> float:
        """Seconds to wait; 0 if it was granted."""
        now = self._clock()
        left, seen = self._known.pop(name, (self._most, now))
        left = min(self._most, left + (now - seen) * self._per_second)
        granted = left >= 1
        self._known[name] = (left - granted, now)
        if len(self._known) > NAMES_KNOWN_MAX:
            self._known.popitem(last=False)
        return 0.0 if granted else (1 - left) / self._per_second
