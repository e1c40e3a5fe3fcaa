"""`holdfast tenants`: what each tenant may run, what it runs, and its pauses."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, number_or, tell_why, with_app
from holdfast.looking import LIST_MAX
from holdfast.store.protocol import UNCHANGED, Depth, Tenant, Unchanged
from holdfast.why import Why

AS_THE_PLAN_SAYS = "plan"


@click.group(cls=Group)
def tenants() -> None:
    """See and set what tenants may run; pause them."""


@tenants.command("list")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@click.option("--cursor", metavar="ID", type=name, help="Go on after this tenant.")
@click.pass_obj
def list_tenants(call: Call, limit: int, cursor: str | None) -> None:
    """List the tenants that were set, by name."""
    found = with_app(call, lambda hf: hf.tenants.list(after=cursor, limit=limit))
    next_cursor = found[-1].id if len(found) == limit else None
    if call.as_json:
        print_json({"tenants": found, "next_cursor": next_cursor})
        return
    if not found:
        say(
            "No more tenants."
            if cursor
            else "No tenant was set, so each is on the plan free; `holdfast tenants set ID` sets one."
        )
        return
    from holdfast.cli.limits_text import tenants_text

    tenants_text(found)
    if next_cursor:
        say(f"More: --cursor {next_cursor}")


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@click.pass_obj
def show(call: Call, tenant_id: str) -> None:
    """Show what a tenant may have, what it has, and what holds its jobs."""

    async def read(hf: Holdfast) -> tuple[Tenant, Depth, Why]:
        tenant = await hf.tenants.get(tenant_id)
        depths = await hf.store.tenant_depths([tenant_id])
        return tenant, depths[tenant_id], await hf.why_tenant(tenant_id)

    tenant, depth, why = with_app(call, read)
    if call.as_json:
        print_json({"tenant": tenant, "queued": depth.queued, "why": why})
    else:
        from holdfast.cli.limits_text import tenant_text

        tenant_text(tenant, depth, why)


@tenants.command("set")
@click.argument("tenant_id", metavar="ID", type=name)
@click.option("--plan", type=name, metavar="PLAN", help="See `holdfast plans list`.")
@click.option("--limit", type=number_or(AS_THE_PLAN_SAYS), metavar="N|plan", help="Jobs at a time; `plan`: as its plan says.")
@click.option("--queue-depth", type=number_or(AS_THE_PLAN_SAYS), metavar="N|plan", help="Jobs that may wait; `plan`: likewise.")
@click.option("--timezone", type=name, metavar="NAME", help="By which its months are counted, such as Europe/Paris.")
@by_option
@click.pass_obj
def set_tenant(
    call: Call,
    tenant_id: str,
    plan: str | None,
    limit: int | str | None,
    queue_depth: int | str | None,
    timezone: str | None,
    by: str,
) -> None:
    """Change a tenant's plan or its own numbers, from the next claim on; the rest stays."""
    if plan is None and limit is None and queue_depth is None and timezone is None:
        raise click.UsageError("say what to change: --plan, --limit, --queue-depth or --timezone")
    changes: dict[str, Any] = {"limit": _number(limit), "queue_depth": _number(queue_depth), "timezone": timezone or UNCHANGED}
    _tell(call, with_app(call, lambda hf: hf.tenants.set(tenant_id, plan=plan or UNCHANGED, by=by, **changes)))


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def pause(call: Call, tenant_id: str, by: str) -> None:
    """Start no more jobs of a tenant; what runs goes on."""
    _tell(call, with_app(call, lambda hf: hf.tenants.pause(tenant_id, by=by)))


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@by_option
@click.pass_obj
def resume(call: Call, tenant_id: str, by: str) -> None:
    """End a pause."""
    _tell(call, with_app(call, lambda hf: hf.tenants.resume(tenant_id, by=by)))


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@click.pass_obj
def why(call: Call, tenant_id: str) -> None:
    """Say in one sentence what holds a tenant's jobs."""
    tell_why(call, with_app(call, lambda hf: hf.why_tenant(tenant_id)))


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@click.pass_obj
def export(call: Call, tenant_id: str) -> None:
    """Write all that is stored of a tenant, a JSON object on each line; secrets are left out.

    Example: holdfast tenants export acme > acme.ndjson
    """

    async def write(hf: Holdfast) -> None:
        async for row in hf.tenants.export(tenant_id):
            click.echo(msgspec.json.encode(row, enc_hook=str))

    with_app(call, write)


@tenants.command()
@click.argument("tenant_id", metavar="ID", type=name)
@click.option("--yes", is_flag=True, help="Do not ask.")
@by_option
@click.pass_obj
def erase(call: Call, tenant_id: str, yes: bool, by: str) -> None:
    """Delete all that is stored of a tenant: jobs, logs, events, keys, members and the rest. There is no way back.

    Example: holdfast tenants erase acme
    """
    if not yes:
        click.confirm(f"Delete everything that is stored of {tenant_id}?", abort=True, err=True)
    erased = with_app(call, lambda hf: hf.tenants.erase(tenant_id, by=by))
    if call.as_json:
        print_json(erased)
    else:
        say(f"Erased {sum(erased.rows.values())} rows of {tenant_id}.")


def _number(given: int | str | None) -> int | Unchanged | None:
    if given is None:
        return UNCHANGED
    return given if isinstance(given, int) else None


def _tell(call: Call, tenant: Tenant) -> None:
    if call.as_json:
        print_json(tenant)
    else:
        from holdfast.cli.limits_text import tenants_text

        tenants_text([tenant])
