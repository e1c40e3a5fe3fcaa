"""`holdfast webhooks`: whom tenants want to be told of what, and what became of each message."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.job import State
from holdfast.people.common import LIST_MAX
from holdfast.webhooks.endpoints import Delivery, NewWebhook, Webhook

limit_option = click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
cursor_option = click.option("--cursor", metavar="ID", type=name, help="Go on after this one.")


@click.group(cls=Group)
def webhooks() -> None:
    """Set, see, test and replay webhooks.

    Example: holdfast webhooks set acme https://example.com/hooks --event 'job.*'
    """


@webhooks.command("set")
@click.argument("tenant", type=name)
@click.argument("url", required=False)
@click.option("--event", "events", metavar="TYPE", multiple=True, help="What it wants; may be repeated.  [default: *]")
@click.option("--description", metavar="TEXT", type=name)
@click.option("--id", "webhook_id", metavar="ID", type=name, help="Change this one instead of making a new one.")
@by_option
@click.pass_obj
def set_webhook(
    call: Call, tenant: str, url: str | None, events: tuple[str, ...], description: str | None, webhook_id: str | None, by: str
) -> None:
    """Make a webhook and show its secret, once; or change one."""
    given: dict[str, Any] = {"events": events or None, "description": description, "id": webhook_id, "by": by}
    _show_made(call, with_app(call, lambda hf: hf.webhooks.set(tenant, url, **given)))


@webhooks.command("list")
@click.option("--tenant", metavar="ID", type=name, help="Only those of this tenant.")
@limit_option
@cursor_option
@click.pass_obj
def list_webhooks(call: Call, tenant: str | None, limit: int, cursor: str | None) -> None:
    """List webhooks, newest first; never their secrets."""
    found = with_app(call, lambda hf: hf.webhooks.list(tenant=tenant, cursor=cursor, limit=limit))
    next_cursor = found[-1].id if len(found) == limit else None
    if call.as_json:
        print_json({"webhooks": [_plain(one) for one in found], "next_cursor": next_cursor})
    elif not found:
        say("No more webhooks." if cursor else "There is no webhook; `holdfast webhooks set TENANT URL` makes one.")
    else:
        _table(found)
        if next_cursor:
            say(f"More: --cursor {next_cursor}")


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def remove(call: Call, webhook_id: str, by: str) -> None:
    """Remove a webhook; what is on its way there is given up."""
    with_app(call, lambda hf: hf.webhooks.remove(webhook_id, by=by))
    if call.as_json:
        print_json({"removed": webhook_id})
    else:
        say(f"Removed {webhook_id}.")


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def rotate(call: Call, webhook_id: str, by: str) -> None:
    """Make a new secret and show it, once; for a day messages are signed with both."""
    _show_made(call, with_app(call, lambda hf: hf.webhooks.rotate(webhook_id, by=by)))


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def enable(call: Call, webhook_id: str, by: str) -> None:
    """Send to a disabled webhook again."""
    _show_one(call, with_app(call, lambda hf: hf.webhooks.enable(webhook_id, by=by)))


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@click.option("--reason", metavar="TEXT", type=name, default="by hand", show_default=True)
@by_option
@click.pass_obj
def disable(call: Call, webhook_id: str, reason: str, by: str) -> None:
    """Send nothing there any more."""
    _show_one(call, with_app(call, lambda hf: hf.webhooks.disable(webhook_id, reason=reason, by=by)))


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def test(call: Call, webhook_id: str, by: str) -> None:
    """Send a message of the type webhook.test; a worker delivers it."""
    _show_deliveries(call, [with_app(call, lambda hf: hf.webhooks.test(webhook_id, by=by))], None)


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@click.option("--state", type=click.Choice([state.value for state in State]), help="failed are the dead letters.")
@limit_option
@cursor_option
@click.pass_obj
def deliveries(call: Call, webhook_id: str, state: str | None, limit: int, cursor: str | None) -> None:
    """What was sent, newest first, with the last answer."""
    found = with_app(call, lambda hf: hf.webhooks.deliveries(webhook_id, state=state, cursor=cursor, limit=limit))
    _show_deliveries(call, list(found), found[-1].id if len(found) == limit else None)


@webhooks.command()
@click.argument("webhook_id", metavar="ID", type=name)
@click.argument("delivery_id", metavar="[DELIVERY]", type=name, required=False)
@by_option
@click.pass_obj
def replay(call: Call, webhook_id: str, delivery_id: str | None, by: str) -> None:
    """Send a failed delivery again, or all of them."""
    done = with_app(call, lambda hf: hf.webhooks.replay(webhook_id, delivery_id, by=by))
    if call.as_json:
        print_json({"replayed": done})
    else:
        say(f"{len(done)} deliveries are sent again.")


def _plain(webhook: Webhook) -> dict[str, Any]:
    return {**msgspec.to_builtins(webhook), "status": webhook.status}


def _show_made(call: Call, made: NewWebhook) -> None:
    if made.secret is None:
        _show_one(call, made.webhook)
    elif call.as_json:
        # Not print_json: it takes secrets out, and this is the one place that shows one.
        click.echo(msgspec.json.format(msgspec.json.encode({"webhook": _plain(made.webhook), "secret": made.secret}), indent=2))
    else:
        say(f"Webhook {made.webhook.id} of {made.webhook.tenant}. Its secret is shown once:")
        click.echo(made.secret)


def _show_one(call: Call, webhook: Webhook) -> None:
    if call.as_json:
        print_json(_plain(webhook))
    else:
        _table([webhook])


def _table(found: list[Webhook]) -> None:
    from holdfast.cli.output import console, print_table

    rows = (
        (one.id, one.tenant, one.status, ", ".join(one.events), one.url, one.disabled_reason or one.last_error or "")
        for one in found
    )
    print_table(console(), ("webhook", "tenant", "status", "events", "url", "why"), rows)


def _show_deliveries(call: Call, found: list[Delivery], next_cursor: str | None) -> None:
    from holdfast.cli.output import age, console, print_table

    if call.as_json:
        print_json({"deliveries": found, "next_cursor": next_cursor})
        return
    rows = (
        (
            one.id,
            one.type,
            one.status,
            str(one.attempt),
            age(one.created_at),
            one.error_message or (one.answer or {}).get("answer", ""),
        )
        for one in found
    )
    print_table(console(), ("id", "type", "status", "attempt", "sent", "last answer"), rows)
    if next_cursor:
        say(f"More: --cursor {next_cursor}")
