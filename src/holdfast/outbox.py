"""The outbox: a message is written in the caller's transaction, as one job for each endpoint that wants it.

It is sent if and only if that transaction commits. Messages of one key reach an endpoint in the order in which they were sent;
endpoints do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import ConfigError, InvalidArguments, InvalidOption
from holdfast.ids import new_job_id
from holdfast.job import Job
from holdfast.people.common import checked_name
from holdfast.store.protocol import CallerStatement
from holdfast.task import JobSpec
from holdfast.tx import Caller, Rows, caller_of
from holdfast.webhooks.common import Platform
from holdfast.webhooks.delivery import delivery_task
from holdfast.webhooks.endpoints import checked_type, wants

KEY_CHARS_MAX = 400
_key = codec.text(KEY_CHARS_MAX)


class Message(msgspec.Struct, frozen=True):
    """What was sent. Without an endpoint that wants it there are no deliveries."""

    id: str
    """Receivers see it as `webhook-id`, the same at every try."""
    deliveries: list[Job[Any]]


class Outbox:
    """`hf.outbox`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.delivery = delivery_task(platform)
        """Known to the workers of apps that send webhooks; any program may enqueue it, such as the command line."""

    async def send(self, tenant: str, type: str, data: Any, *, key: str | None = None, tx: Any = None) -> Message:
        """To every enabled endpoint of the tenant that wants this type. `key`: in order with others of the same key. `tx`: in
        the caller's transaction, on any connection that enqueue takes."""
        statement = self._asked(tenant, type, key)
        if tx is None:
            rows: Rows = [tuple(row.values()) for row in await self._platform.store.shared("webhook_targets", tenant)]
        else:
            rows = await self._caller(tx).run_async(statement)
        return await self.send_to(tenant, _wanting(rows, type), type, data, key=key, tx=tx)

    def send_sync(self, tenant: str, type: str, data: Any, *, key: str | None = None, tx: Any = None) -> Message:
        if tx is None:
            return self._platform.call_sync(self.send(tenant, type, data, key=key))
        rows = self._caller(tx).run(self._asked(tenant, type, key))
        message, specs = self._planned(tenant, _wanting(rows, type), type, data, key)
        return Message(message, self._platform.enqueue_jobs_sync(specs, tx) if specs else [])

    async def send_to(
        self, tenant: str, webhooks: Sequence[str], type: str, data: Any, *, key: str | None = None, tx: Any = None
    ) -> Message:
        """To these endpoints, whatever they have subscribed to."""
        message, specs = self._planned(tenant, webhooks, type, data, key)
        return Message(message, await self._platform.enqueue_jobs(specs, tx) if specs else [])

    def _asked(self, tenant: str, type: str, key: str | None) -> CallerStatement:
        """Everything is checked before the database is asked."""
        if not self._platform.settings.webhooks:
            raise ConfigError("Webhooks are off, so nobody would deliver this: set webhooks=True, or HOLDFAST_WEBHOOKS=true.")
        checked_name("tenant", tenant)
        checked_type(type)
        try:
            if key is not None:
                _key(key)
        except ValueError as wrong:
            raise InvalidOption(f"the key of a message must be {wrong}.") from None
        return self._platform.store.shared_statement("webhook_targets", tenant)

    def _caller(self, tx: Any) -> Caller:
        caller = caller_of(tx)
        if caller.kind != self._platform.store.name:
            raise InvalidOption(f"tx is a connection to {caller.kind}, not to {self._platform.store.name}.")
        return caller

    def _planned(
        self, tenant: str, webhooks: Sequence[str], type: str, data: Any, key: str | None
    ) -> tuple[str, list[JobSpec[Any]]]:
        """The body is fixed here: every try sends, and signs, the very same bytes."""
        message = f"msg_{new_job_id().replace('-', '')}"
        at = (self._platform.clock.now() or datetime.now(UTC)).isoformat().replace("+00:00", "Z")
        try:
            body = codec.encode({"type": type, "timestamp": at, "data": data}).decode()
        except codec.NotJson as error:
            raise InvalidArguments(f"the data of a message {error}; send plain data") from error
        # No tenant on these jobs: an endpoint that hangs must not use up the running jobs and the depth of its owner's plan.
        return message, [
            self.delivery.options(project=webhook, order=None if key is None else f"{webhook}:{key}").job(
                webhook=webhook, tenant=tenant, message=message, type=type, body=body
            )
            for webhook in webhooks
        ]


def _wanting(rows: Rows, type: str) -> list[str]:
    return [webhook for webhook, events in rows if wants(msgspec.json.decode(events), type)]
