"""Webhooks that come in: signature and time are checked, a delivery is taken once, and is a job before it is answered."""

from __future__ import annotations

import hashlib
import inspect
import re
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import ConfigError, InvalidArguments, NotFound
from holdfast.task import JobSpec, Task
from holdfast.webhooks.common import Platform
from holdfast.webhooks.signing import TOLERANCE_SECONDS, Scheme, check_secret, verify

REMEMBERED_SECONDS = 7 * 86_400.0
"""A sender may try again for days; GitHub redelivers for three."""
DELIVERY_CHARS_MAX = 200
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
_SCHEME_NAMES = ("standard", "github", "stripe")
_GIVEN = ("body", "type", "delivery", "source")

Tenant = str | Callable[[Any], str | None] | None
"""Whose job it becomes: a name, or a function of the body."""


class Received(msgspec.Struct, frozen=True):
    job_id: str
    duplicate: bool
    """It was here before, and this is its job."""


class Source(msgspec.Struct, frozen=True):
    name: str
    scheme: Scheme
    secrets: tuple[str, ...]
    task: Task[..., Any]
    takes: tuple[str, ...]
    tenant: Any
    tolerance: float

    def __repr__(self) -> str:
        return f"<Source {self.name} ({self.scheme}) for {self.task.name}>"


class Inbound:
    """`hf.inbound`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.sources: dict[str, Source] = {}

    def __call__(
        self,
        source: str,
        *,
        secret: str | Sequence[str],
        task: Task[..., Any] | str,
        scheme: Scheme | None = None,
        tenant: Tenant = None,
        tolerance: float = TOLERANCE_SECONDS,
    ) -> Source:
        """Take webhooks of this source at `POST /api/webhooks/in/{source}`. The task is given those of `body`, `type`,
        `delivery` and `source` that it has parameters for. Several secrets: any of them will do, so that one can be changed."""
        label = f"inbound {reprlib.repr(source)}"
        if not isinstance(source, str) or not _NAME.fullmatch(source) or source in self.sources:
            raise ConfigError(f"{label}: a source has a name of its own of a-z, 0-9, _ and -, up to 50 characters")
        chosen: Any = scheme or (source if source in _SCHEME_NAMES else "standard")
        if chosen not in _SCHEME_NAMES:
            raise ConfigError(f"{label}: scheme must be one of {', '.join(_SCHEME_NAMES)}, not {reprlib.repr(scheme)}")
        given = [secret] if isinstance(secret, str) else list(secret)
        if not given:
            raise ConfigError(f"{label}: give its secret; without one anybody could send")
        known = self._platform.task_named(task) if isinstance(task, str) else task
        takes = tuple(name for name in _GIVEN if name in inspect.signature(known.fn).parameters)
        checked = tuple(check_secret(chosen, one) for one in given)
        made = Source(source, chosen, checked, known, takes, tenant, float(codec.seconds(1.0)(tolerance)))
        self.sources[source] = made
        return made

    async def receive(self, source: str, headers: Mapping[str, str], body: bytes) -> Received:
        """The job of this delivery, committed. SignatureInvalid, NotFound or InvalidArguments: nothing was written."""
        found = self.sources.get(source)
        if found is None:
            raise NotFound(f"There is no source of webhooks {reprlib.repr(source)}.")
        now = self._platform.clock.now()
        moment = time.time() if now is None else now.timestamp()
        lower = {name.lower(): value for name, value in headers.items()}
        verified = verify(found.scheme, found.secrets, lower, body, moment, found.tolerance)
        content = _json_of(body)
        in_body = content if isinstance(content, dict) else {}
        delivery = verified.delivery or _text(in_body.get("id")) or hashlib.sha256(body).hexdigest()
        values = {
            "body": content,
            "type": verified.type or _text(in_body.get("type")),
            "delivery": delivery[:DELIVERY_CHARS_MAX],
            "source": source,
        }
        args = found.task.bind_arguments((), {name: values[name] for name in found.takes})
        tenant = found.tenant(content) if callable(found.tenant) else found.tenant
        return await self._take(found, delivery, args, tenant)

    def receive_sync(self, source: str, headers: Mapping[str, str], body: bytes) -> Received:
        return self._platform.call_sync(self.receive(source, headers, body))

    async def _take(self, source: Source, delivery: str, args: bytes, tenant: str | None) -> Received:
        options = source.task.options(tenant=tenant, enqueued_by=f"webhook:{source.name}").job_options
        row = hashlib.sha256(f"inbound\0{source.name}\0{delivery}".encode(errors="replace")).hexdigest()
        async with self._platform.transaction() as tx:
            known = await tx.shared("inbound_note", row, tenant, source.name, REMEMBERED_SECONDS)
            if known:
                job = (await self._platform.enqueue_jobs([JobSpec(source.task, args, options)], tx))[0]
                await tx.shared("inbound_keep", row, msgspec.json.encode({"job": job.id}).decode())
                return Received(job.id, False)
            kept = await tx.shared("idempotency_get", row)
        return Received(msgspec.json.decode(kept[0]["response"])["job"], True)


def _json_of(body: bytes) -> Any:
    try:
        return codec.decode(body)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise InvalidArguments("The body of this webhook is no JSON.") from None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
