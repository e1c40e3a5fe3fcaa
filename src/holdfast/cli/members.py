"""`holdfast members`: who is what in which tenant. Whoever can open the database may do all of this."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.people.common import LIST_MAX
from holdfast.people.members import Member
from holdfast.roles import MEMBER_ROLES

role_choice = click.Choice(list(MEMBER_ROLES))


@click.group(cls=Group)
def members() -> None:
    """See and change who is a member of which tenant, and as what."""


@members.command("list")
@click.argument("tenant", metavar="TENANT", type=name)
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@click.option("--cursor", metavar="USER", type=name, help="Go on after this member.")
@click.pass_obj
def list_members(call: Call, tenant: str, limit: int, cursor: str | None) -> None:
    """List the members of a tenant."""
    found = with_app(call, lambda hf: hf.members.list(tenant, cursor=cursor, limit=limit))
    next_cursor = found[-1].user_id if len(found) == limit else None
    if call.as_json:
        print_json({"members": found, "next_cursor": next_cursor})
        return
    if not found:
        say("No more members." if cursor else f"{tenant} has no members; `holdfast members add {tenant} USER` adds one.")
        return
    _table(found)
    if next_cursor:
        say(f"More: --cursor {next_cursor}")


@members.command()
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("user", metavar="USER", type=name)
@click.option("--role", type=role_choice, default="member", show_default=True)
@by_option
@click.pass_obj
def add(call: Call, tenant: str, user: str, role: str, by: str) -> None:
    """Add a user, by the `sub` of his tokens."""
    _tell(call, with_app(call, lambda hf: hf.members.add(tenant, user, role, by=by)))


@members.command()
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("user", metavar="USER", type=name)
@click.argument("new_role", metavar="ROLE", type=role_choice)
@by_option
@click.pass_obj
def role(call: Call, tenant: str, user: str, new_role: str, by: str) -> None:
    """Change a member's role: viewer, member, admin or owner. The last owner stays one."""
    _tell(call, with_app(call, lambda hf: hf.members.set_role(tenant, user, new_role, by=by)))


@members.command()
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("user", metavar="USER", type=name)
@by_option
@click.pass_obj
def remove(call: Call, tenant: str, user: str, by: str) -> None:
    """Take a user out of a tenant. The last owner stays."""
    _tell(call, with_app(call, lambda hf: hf.members.remove(tenant, user, by=by)))


def _tell(call: Call, member: Member) -> None:
    if call.as_json:
        print_json(member)
    else:
        _table([member])


def _table(found: list[Member]) -> None:
    from holdfast.cli.output import age, console, print_table

    rows = ((member.user_id, member.role, age(member.added_at), member.added_by or "") for member in found)
    print_table(console(), ("user", "role", "added", "by"), rows)
