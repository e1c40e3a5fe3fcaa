"""`holdfast plans`: what the tenants of a plan may have."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json
from holdfast.cli.shared import by_option, name, with_app
from holdfast.tenants import NUMBER_MAX


@click.group(cls=Group)
def plans() -> None:
    """See and set what the tenants of a plan may have."""


@plans.command("list")
@click.pass_obj
def list_plans(call: Call) -> None:
    """List the plans, the smallest first."""
    found = with_app(call, lambda hf: hf.plans.list())
    if call.as_json:
        print_json({"plans": found})
    else:
        from holdfast.cli.limits_text import plans_text

        plans_text(found)


@plans.command("set")
@click.argument("plan", metavar="NAME", type=name)
@click.option("--running", type=click.IntRange(0, NUMBER_MAX), required=True, help="Jobs of a tenant at a time.")
@click.option("--queue-depth", type=click.IntRange(0, NUMBER_MAX), required=True, help="Jobs of a tenant that may wait.")
@click.option(
    "--weight", type=click.IntRange(1, 100), default=1, show_default=True, help="Share of a turn, where tenants compete."
)
@by_option
@click.pass_obj
def set_plan(call: Call, plan: str, running: int, queue_depth: int, weight: int, by: str) -> None:
    """Make a plan, or change it for all its tenants from the next claim on."""
    saved = with_app(call, lambda hf: hf.plans.set(plan, running=running, queue_depth=queue_depth, weight=weight, by=by))
    if call.as_json:
        print_json(saved)
    else:
        from holdfast.cli.limits_text import plans_text

        plans_text([saved])
