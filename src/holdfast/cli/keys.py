"""`holdfast keys`: what calls the HTTP API. Whoever can open the database may do all of this."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.people.common import LIST_MAX
from holdfast.people.keys import Key
from holdfast.roles import MEMBER_ROLES, Role


@click.group(cls=Group)
def keys() -> None:
    """Make, see and revoke the keys of the HTTP API."""


@keys.command()
@click.option("--tenant", metavar="ID", type=name, help="Whose key it is.")
@click.option("--role", type=click.Choice(list(MEMBER_ROLES)), help="What it may do.  [default: member]")
@click.option("--service", is_flag=True, help="A key across all tenants, which may do everything.")
@click.option("--expires", metavar="TIME", help="90d, 12h, 2w …; without it the key never ends by itself.")
@click.option("--name", "label", metavar="NAME", type=name, help="What it is for.")
@by_option
@click.pass_obj
def create(
    call: Call, tenant: str | None, role: str | None, service: bool, expires: str | None, label: str | None, by: str
) -> None:
    """Make a key and show its secret, once."""
    if service == (tenant is not None) or (service and role):
        raise click.UsageError("say whose key it is: --tenant ID with --role, or --service alone")
    wanted = Role.SERVICE.word if service else role or Role.MEMBER.word
    made = with_app(call, lambda hf: hf.keys.create(tenant=tenant, role=wanted, expires=expires, name=label, by=by))
    if call.as_json:
        # Not print_json: it takes secrets out, and this is the one place that shows one.
        click.echo(msgspec.json.format(msgspec.json.encode({"key": made.key, "secret": made.secret}), indent=2))
        return
    ends = f", until {made.key.expires_at:%Y-%m-%d %H:%M} UTC" if made.key.expires_at else ", without an end"
    say(f"Key {made.key.id}: {made.key.role} of {tenant or 'all tenants'}{ends}. This is shown once:")
    click.echo(made.secret)


@keys.command("list")
@click.option("--tenant", metavar="ID", type=name, help="Only those of this tenant.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@click.option("--cursor", metavar="ID", type=name, help="Go on after this key.")
@click.pass_obj
def list_keys(call: Call, tenant: str | None, limit: int, cursor: str | None) -> None:
    """List the keys, newest first; never their secrets."""
    found = with_app(call, lambda hf: hf.keys.list(tenant=tenant, cursor=cursor, limit=limit))
    next_cursor = found[-1].id if len(found) == limit else None
    if call.as_json:
        print_json({"keys": found, "next_cursor": next_cursor})
        return
    if not found:
        say("No more keys." if cursor else "There is no key; `holdfast keys create --tenant ID` makes one.")
        return
    _table(found)
    if next_cursor:
        say(f"More: --cursor {next_cursor}")


@keys.command()
@click.argument("key_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def revoke(call: Call, key_id: str, by: str) -> None:
    """End a key within two seconds, and the browser sessions that it began."""
    key = with_app(call, lambda hf: hf.keys.revoke(key_id, by=by))
    if call.as_json:
        print_json(key)
    else:
        _table([key])


def _table(keys: list[Key]) -> None:
    from holdfast.cli.output import age, console, moment, print_table

    def ending(key: Key) -> str:
        if key.revoked_at:
            return f"revoked {age(key.revoked_at)}{f' by {key.revoked_by}' if key.revoked_by else ''}"
        return moment(key.expires_at) or "never"

    rows = (
        (key.id, key.tenant or "all", key.role, f"{key.prefix}…", key.name or "", age(key.last_used_at), ending(key))
        for key in keys
    )
    print_table(console(), ("key", "tenant", "role", "secret", "name", "last used", "ends"), rows)
