"""Endpoints: whom a tenant wants to be told of what, with a secret that is shown once; and what became of each delivery."""

from __future__ import annotations

import fnmatch
import re
import reprlib
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import ConfigError, Conflict, InvalidOption, JobConflict, JobNotFound, NotFound
from holdfast.ids import FIRST_ID, LAST_ID, is_uuid
from holdfast.job import Hold, State, status_of
from holdfast.people.common import checked_limit, checked_name, checked_name_or_none, note, within
from holdfast.sealing import open_json
from holdfast.store.protocol import Transaction
from holdfast.webhooks.common import OLD_SECRET_SECONDS, Platform
from holdfast.webhooks.sealing import seal
from holdfast.webhooks.signing import check_secret, new_secret
from holdfast.webhooks.targets import check_url

EVENTS_MAX = 100
TEST_TYPE = "webhook.test"
REPLAY_MAX = 1000
_ID = re.compile(r"wh_[0-9a-f]{10,40}")
_TYPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_FILTER = re.compile(r"\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?")


class Webhook(msgspec.Struct, kw_only=True, frozen=True):
    """An endpoint without its secret."""

    id: str
    tenant: str
    url: str
    events: list[str]
    """Types such as `job.failed`, all of a kind (`job.*`), or `*`."""
    description: str | None
    failures: int
    """In a row."""
    failing_since_at: datetime | None
    retry_at: datetime | None
    """After failures: nothing is sent before."""
    last_error: str | None
    disabled_at: datetime | None
    disabled_reason: str | None
    old_secret_ends_at: datetime | None
    created_at: datetime
    created_by: str | None

    @property
    def status(self) -> str:
        return "disabled" if self.disabled_at else "failing" if self.failures else "ok"


class NewWebhook(msgspec.Struct, kw_only=True, frozen=True):
    webhook: Webhook
    secret: str | None
    """Shown now and never again; None where a webhook was changed and keeps the one it has."""

    def __repr__(self) -> str:
        return f"NewWebhook(webhook={self.webhook!r}, secret={'whsec_…' if self.secret else None!r})"


class Delivery(msgspec.Struct, kw_only=True, frozen=True):
    """One message on its way to one endpoint. Its id is its job's."""

    id: str
    message: str
    type: str
    status: str
    attempt: int
    answer: dict[str, Any] | None
    """The last one, cut short and without secrets."""
    error_code: str | None
    error_message: str | None
    next_try_at: datetime | None
    created_at: datetime | None
    finished_at: datetime | None


def wants(events: Sequence[str], type: str) -> bool:
    return any(one == "*" or one == type or (one.endswith(".*") and fnmatch.fnmatchcase(type, one)) for one in events)


def checked_type(type: object) -> str:
    if not isinstance(type, str) or len(type) > 100 or not _TYPE.fullmatch(type):
        raise InvalidOption(
            f"the type of a message is words with dots between, such as invoice.paid, not {reprlib.repr(type)}."
        )
    return type


class Webhooks:
    """`hf.webhooks`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def set(
        self,
        tenant: str,
        url: str | None = None,
        *,
        events: Sequence[str] | None = None,
        description: str | None = None,
        secret: str | None = None,
        id: str | None = None,
        by: str | None = None,
        tx: Transaction | None = None,
    ) -> NewWebhook:
        """Make an endpoint, or with `id` change one: what is not mentioned stays. `secret` is for those who bring their own."""
        checked_name("tenant", tenant)
        filters = None if events is None else msgspec.json.encode(_checked_filters(events)).decode()
        description, by = checked_name_or_none("description", description), checked_name_or_none("by", by)
        address = None if url is None else check_url(url, self._platform.settings.webhook_networks)
        if id is not None:
            return await self._change(id, tenant, address, filters, description, by, tx)
        if address is None:
            raise InvalidOption("A new webhook needs its url.")
        secret = new_secret() if secret is None else _own_secret(secret)
        webhook_id = f"wh_{time.time_ns() // 1_000_000:011x}{secrets.token_hex(6)}"  # in the order of their making
        stored = seal(secret, self._platform.settings.encryption_keys, webhook_id)
        async with within(self._platform, tx) as inside:
            given = (webhook_id, tenant, address, filters or '["*"]', description, stored, by)
            rows = await inside.shared("webhook_insert", *given)
            await note(inside, tenant, "webhook.created", by, webhook=webhook_id, url=address)
        return NewWebhook(webhook=_webhook(rows[0]), secret=secret)

    async def _change(self, webhook_id: str, tenant: str, url: str | None, *changed: Any) -> NewWebhook:
        filters, description, by, tx = changed
        async with within(self._platform, tx) as inside:
            rows = await inside.shared("webhook_change", _known(webhook_id), tenant, url, filters, description)
            if not rows:
                raise _missing(webhook_id)
            await note(inside, tenant, "webhook.changed", by, webhook=webhook_id, url=rows[0]["url"])
        return NewWebhook(webhook=_webhook(rows[0]), secret=None)

    async def get(self, id: str, *, tenant: str | None = None) -> Webhook:
        """`tenant`, here and below: NotFound if it is another one's."""
        return _webhook(_one(await self._platform.store.shared("webhook_get", _known(id), tenant), id))

    async def list(self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 50) -> list[Webhook]:
        """Newest first; `cursor` is the id of the last one seen."""
        where = (checked_name_or_none("tenant", tenant), checked_name_or_none("cursor", cursor), checked_limit(limit))
        rows = await self._platform.store.shared("webhook_list", *where)
        return [_webhook(row) for row in rows]

    async def remove(self, id: str, *, tenant: str | None = None, by: str | None = None) -> None:
        """What is still on its way there is given up at its next try."""
        async with self._platform.transaction() as tx:
            row = _one(await tx.shared("webhook_remove", _known(id), tenant), id)
            await note(tx, row["tenant"], "webhook.removed", checked_name_or_none("by", by), webhook=id, url=row["url"])

    async def rotate(
        self, id: str, *, tenant: str | None = None, keep: float = OLD_SECRET_SECONDS, by: str | None = None
    ) -> NewWebhook:
        """A new secret. For `keep` seconds messages are signed with both, so that the receiver can change over."""
        secret = new_secret()
        stored = seal(secret, self._platform.settings.encryption_keys, id)
        async with self._platform.transaction() as tx:
            row = _one(await tx.shared("webhook_rotate", _known(id), tenant, stored, float(keep)), id)
            await note(tx, row["tenant"], "webhook.rotated", checked_name_or_none("by", by), webhook=id)
        return NewWebhook(webhook=_webhook(row), secret=secret)

    async def disable(self, id: str, *, reason: str = "by hand", tenant: str | None = None, by: str | None = None) -> Webhook:
        return await self._switch("disable", id, tenant, by, checked_name("reason", reason))

    async def enable(self, id: str, *, tenant: str | None = None, by: str | None = None) -> Webhook:
        """Send there again. What failed meanwhile can be replayed."""
        return await self._switch("enable", id, tenant, by)

    async def _switch(self, act: str, id: str, tenant: str | None, by: str | None, *reason: str) -> Webhook:
        async with self._platform.transaction() as tx:
            rows = await tx.shared(f"webhook_{act}", _known(id), tenant, *reason)
            if rows:
                told = {"webhook": id, "reason": reason[0]} if reason else {"webhook": id}
                await note(tx, rows[0]["tenant"], f"webhook.{act}d", checked_name_or_none("by", by), **told)
        return await self.get(id, tenant=tenant)

    async def test(self, id: str, *, tenant: str | None = None, by: str | None = None) -> Delivery:
        """Send it a message of the type `webhook.test`, whatever it has subscribed to."""
        by = checked_name_or_none("by", by)
        webhook = await self.get(id, tenant=tenant)
        if webhook.disabled_at:
            raise Conflict(f"The webhook {id} is disabled; enable it first.", "webhook_disabled")
        message = await self._platform.outbox.send_to(webhook.tenant, [id], TEST_TYPE, {"webhook": id})
        async with self._platform.transaction() as tx:
            await note(tx, webhook.tenant, "webhook.tested", by, webhook=id)
        return await self.delivery(id, message.deliveries[0].id)

    # -- deliveries ------------------------------------------------------------------------------------------------------

    async def deliveries(
        self, id: str, *, tenant: str | None = None, state: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Sequence[Delivery]:
        """Newest first, each with its last answer. `state` as of jobs: `failed` are the dead letters."""
        if state is not None and state not in State.__members__.values():
            raise InvalidOption(f"state must be one of {', '.join(State)}, not {reprlib.repr(state)}.")
        if cursor is not None and not is_uuid(cursor):
            raise InvalidOption(f"cursor must be the id of a delivery, not {reprlib.repr(cursor)}.")
        webhook = await self.get(id, tenant=tenant)
        page = (id, (cursor or LAST_ID).lower(), checked_limit(limit))
        shared = self._platform.store.shared
        if state == State.FAILED:
            rows = await shared("delivery_list_failed", *page)
        elif state in (None, State.COMPLETED):
            rows = await shared("delivery_list", *page, state)
        else:
            rows = await shared("delivery_list_of_state", *page, state, webhook.tenant)
        return [_delivery(row, self._platform.settings.encryption_keys) for row in rows]

    async def delivery(self, id: str, delivery: str, *, tenant: str | None = None) -> Delivery:
        await self.get(id, tenant=tenant)
        rows = await self._platform.store.shared("delivery_get", id, delivery) if is_uuid(delivery) else []
        if not rows:
            raise NotFound(f"There is no delivery {reprlib.repr(delivery)} of the webhook {id}.")
        return _delivery(rows[0], self._platform.settings.encryption_keys)

    async def replay(
        self, id: str, delivery: str | None = None, *, tenant: str | None = None, by: str | None = None
    ) -> Sequence[str]:
        """Send a failed delivery again under the same message id, or all of them, oldest first; which ones."""
        if delivery is not None:
            await self.delivery(id, delivery, tenant=tenant)
            await self._platform.retry(delivery, by=by)
            return [delivery]
        await self.get(id, tenant=tenant)
        done: list[str] = []
        cursor = FIRST_ID
        while rows := await self._platform.store.shared("delivery_failed_first", id, cursor, REPLAY_MAX):
            for row in rows:
                cursor = row["id"]
                try:
                    await self._platform.retry(row["id"], by=by)
                    done.append(row["id"])
                except (JobConflict, JobNotFound):
                    continue  # somebody else was faster
        return done

    # -- for sync programs -----------------------------------------------------------------------------------------------

    def set_sync(self, tenant: str, url: str | None = None, **options: Any) -> NewWebhook:
        return self._platform.call_sync(self.set(tenant, url, **options))


def _checked_filters(events: object) -> Sequence[str]:
    if isinstance(events, str) or not isinstance(events, Sequence) or not 0 < len(events) <= EVENTS_MAX:
        raise InvalidOption(f"events must be a list of 1 to {EVENTS_MAX} types, such as ['job.*', 'invoice.paid'].")
    for one in events:
        if not isinstance(one, str) or len(one) > 100 or not _FILTER.fullmatch(one):
            raise InvalidOption(f"events takes types such as invoice.paid, job.* or *, not {reprlib.repr(one)}.")
    return list(dict.fromkeys(events))


def _own_secret(secret: str) -> str:
    try:
        return check_secret("standard", secret)
    except ConfigError as wrong:
        raise InvalidOption(str(wrong)) from None


def _webhook(row: dict[str, Any]) -> Webhook:
    return Webhook(**{**row, "events": msgspec.json.decode(row["events"])})


class _Row(msgspec.Struct):
    """What status_of looks at."""

    state: State
    hold: Hold | None
    attempt: int
    cancel_requested_at: datetime | None


def _delivery(row: dict[str, Any], keys: tuple[bytes, ...]) -> Delivery:
    state = State(row["state"])
    args = msgspec.json.decode(open_json(keys, row["args"], f"{row['id']}:args"))
    looked_at = _Row(state, Hold(row["hold"]) if row["hold"] else None, row["attempt"], row["cancel_requested_at"])
    return Delivery(
        id=row["id"],
        message=args["message"],
        type=args["type"],
        status=status_of(looked_at),
        attempt=row["attempt"],
        answer=msgspec.json.decode(open_json(keys, row["answer"], f"{row['id']}:result")) if row["answer"] else None,
        error_code=row["error_code"],
        error_message=row["error_message"],
        next_try_at=row["run_at"] if state is State.QUEUED else None,
        created_at=row["created_at"],
        finished_at=row["finished_at"],
    )


def _one(rows: Sequence[dict[str, Any]], id: str) -> dict[str, Any]:
    if not rows:
        raise _missing(id)
    return rows[0]


def _known(id: str) -> str:
    """An id that could be one: others would be a question that the database refuses."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise _missing(id)
    return id


def _missing(id: str) -> NotFound:
    return NotFound(f"There is no webhook {reprlib.repr(id)}.")
