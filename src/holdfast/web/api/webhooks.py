"""/api/webhooks: whom an organization wants to be told of what, and what became of each message. For admins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.job import State
from holdfast.store.protocol import Transaction
from holdfast.web.access import Act, Caller, require
from holdfast.web.api.asked import CursorQuery, LimitQuery, TenantQuery, tenant_named
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import Cursor, Name, Status, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, link, once_by_itself, reply, scope
from holdfast.webhooks import endpoints

router = guarded_router("webhooks")

Url = Annotated[str, Field(min_length=1, max_length=2000, examples=["https://example.com/hooks"])]
Filter = Annotated[str, Field(min_length=1, max_length=100, examples=["job.*"])]
Filters = Annotated[list[Filter], Field(min_length=1, max_length=100)]


class Webhook(BaseModel):
    id: str
    tenant: str
    url: str
    events: list[str] = Field(description="Types, all of a kind (`job.*`), or `*`.")
    description: str | None
    status: str = Field(description="`ok`, `failing` or `disabled`.")
    failures: int = Field(description="In a row.")
    failing_since_at: datetime | None
    retry_at: datetime | None = Field(description="After failures: nothing is sent before.")
    last_error: str | None
    disabled_at: datetime | None
    disabled_reason: str | None
    old_secret_ends_at: datetime | None
    created_at: datetime
    created_by: str | None


class MadeWebhook(Webhook):
    secret: str | None = Field(
        description="Shown now and never again: null in an answer that is given again by its Idempotency-Key."
    )


class NewWebhook(Taken):
    url: Url
    events: Filters = ["*"]
    description: Name | None = None


class WebhookChange(Taken):
    url: Url | None = None
    events: Filters | None = None
    description: Name | None = None
    enabled: bool | None = None


class WebhookPage(BaseModel):
    items: list[Webhook]
    next_cursor: Cursor


class Delivery(BaseModel):
    id: str
    message: str = Field(description="`webhook-id`, as the receiver sees it.")
    type: str
    status: Status
    attempt: int
    answer: dict[str, Any] | None = Field(description="The last one where it was good, cut short and without secrets.")
    error_code: str | None
    error_message: str | None
    next_try_at: datetime | None
    created_at: datetime
    finished_at: datetime | None


class DeliveryPage(BaseModel):
    items: list[Delivery]
    next_cursor: Cursor


class Replayed(BaseModel):
    deliveries: list[str]


@router.get("/webhooks", summary="List webhooks, newest first", response_model=WebhookPage, responses=answers(404))
async def list_webhooks(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    found = await hf.webhooks.list(tenant=scope(caller, tenant), cursor=cursor, limit=limit)
    return reply({"items": [_shown(one) for one in found], "next_cursor": found[-1].id if len(found) == limit else None})


@router.post(
    "/webhooks",
    summary="Make a webhook",
    status_code=201,
    response_model=MadeWebhook,
    responses={**answers(404), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
@once_by_itself
async def make_webhook(
    request: Request, body: NewWebhook, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    owner = tenant_named(caller, tenant)

    async def work(tx: Transaction | None) -> Response:
        made = await hf.webhooks.set(owner, body.url, events=body.events, description=body.description, by=caller.actor, tx=tx)
        shown = {**_shown(made.webhook), "secret": made.secret}
        return reply(shown, 201, {"Location": link(request, f"/webhooks/{made.webhook.id}")})

    return await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor, hide=("secret",))


@router.get("/webhooks/{webhook_id}", summary="A webhook", response_model=Webhook, responses=answers(404))
async def get_webhook(webhook_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    return reply(_shown(await _own(hf, caller, webhook_id)))


@router.patch("/webhooks/{webhook_id}", summary="Change a webhook", response_model=Webhook, responses=answers(404))
async def change_webhook(webhook_id: str, body: WebhookChange, caller: CallerDep, hf: HoldfastDep) -> Response:
    """What is not mentioned stays. `enabled: true` lets one that was disabled begin anew."""
    webhook = await _own(hf, caller, webhook_id)
    if (body.url, body.events, body.description) != (None, None, None):
        given = {"events": body.events, "description": body.description, "by": caller.actor}
        webhook = (await hf.webhooks.set(webhook.tenant, body.url, id=webhook_id, **given)).webhook  # type: ignore[arg-type]
    if body.enabled is not None:
        switch = hf.webhooks.enable if body.enabled else hf.webhooks.disable
        webhook = await switch(webhook_id, tenant=caller.tenant, by=caller.actor)
    return reply(_shown(webhook))


@router.delete("/webhooks/{webhook_id}", summary="Remove", status_code=204, response_class=Response, responses=answers(404))
async def remove_webhook(webhook_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    await hf.webhooks.remove(webhook_id, tenant=caller.tenant, by=caller.actor)
    return Response(status_code=204)


@router.post("/webhooks/{webhook_id}/rotate", summary="A new secret", response_model=MadeWebhook, responses=answers(404))
async def rotate_webhook(webhook_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    """For a day messages are signed with both, so that the receiver can change over."""
    require(caller, Act.MANAGE_WEBHOOKS)
    made = await hf.webhooks.rotate(webhook_id, tenant=caller.tenant, by=caller.actor)
    return reply({**_shown(made.webhook), "secret": made.secret})


@router.post(
    "/webhooks/{webhook_id}/test", summary="Send a test", status_code=202, response_model=Delivery, responses=answers(404, 409)
)
async def test_webhook(webhook_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    return reply(await hf.webhooks.test(webhook_id, tenant=caller.tenant, by=caller.actor), 202)


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    summary="What was sent, newest first",
    response_model=DeliveryPage,
    responses=answers(404),
)
async def list_deliveries(
    webhook_id: str,
    caller: CallerDep,
    hf: HoldfastDep,
    state: Annotated[State | None, Query(description="`failed` are the dead letters.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    found = await hf.webhooks.deliveries(webhook_id, tenant=caller.tenant, state=state, cursor=cursor, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].id if len(found) == limit else None})


@router.get(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}", summary="A delivery", response_model=Delivery, responses=answers(404)
)
async def get_delivery(webhook_id: str, delivery_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    return reply(await hf.webhooks.delivery(webhook_id, delivery_id, tenant=caller.tenant))


@router.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}/replay",
    summary="Send a failed one again",
    response_model=Replayed,
    responses=answers(404, 409),
)
async def replay_delivery(webhook_id: str, delivery_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    return reply({"deliveries": await hf.webhooks.replay(webhook_id, delivery_id, tenant=caller.tenant, by=caller.actor)})


@router.post(
    "/webhooks/{webhook_id}/replay", summary="Send all failed ones again", response_model=Replayed, responses=answers(404)
)
async def replay_all(webhook_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_WEBHOOKS)
    return reply({"deliveries": await hf.webhooks.replay(webhook_id, tenant=caller.tenant, by=caller.actor)})


async def _own(hf: HoldfastDep, caller: Caller, webhook_id: str) -> endpoints.Webhook:
    require(caller, Act.MANAGE_WEBHOOKS)
    return await hf.webhooks.get(webhook_id, tenant=caller.tenant)


def _shown(webhook: endpoints.Webhook) -> dict[str, Any]:
    return {**asdict(webhook), "status": webhook.status}
