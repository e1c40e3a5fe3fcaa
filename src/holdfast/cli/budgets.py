"""`holdfast budgets`: what tenants may spend in a month, and have spent."""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.codec import CENTS_MAX
from holdfast.limits.budget import Budget

NO_TENANT = "-"
NONE = "none"


def amount(text: str) -> float | str:
    """As the type of an option: a number of cents, or the word that takes a cap away."""
    if text == NONE:
        return NONE
    try:
        cents = float(text)
    except ValueError:
        cents = -1.0
    if not 0 <= cents <= CENTS_MAX:
        raise click.BadParameter(f"{text!r:.50} is neither `{NONE}` nor a number of cents from 0 on")
    return cents


@click.group(cls=Group)
def budgets() -> None:
    """See and set what tenants may spend in a month.

    Example: holdfast budgets set acme ai --cents 5000
    """


@budgets.command("list")
@click.option("--tenant", type=name, metavar="ID", help="Only this tenant's.")
@click.pass_obj
def list_budgets(call: Call, tenant: str | None) -> None:
    """List those with a cap, and those with spending this month."""
    found = with_app(call, lambda hf: hf.budgets.list(tenant, limit=200))
    if call.as_json:
        print_json({"budgets": [one.as_dict() for one in found]})
    elif found:
        _tell(found)
    else:
        say("No budget was set and nothing was spent; `holdfast budgets set TENANT KIND --cents N` sets one.")


@budgets.command()
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("kind", metavar="KIND", type=name)
@click.pass_obj
def show(call: Call, tenant: str, kind: str) -> None:
    """Show one budget this month, and the last runs that spent of it. TENANT - means jobs without a tenant."""

    async def read(hf: Holdfast) -> tuple[Budget, list[dict[str, Any]]]:
        return await hf.budgets.get(_tenant(tenant), kind), await hf.budgets.runs(_tenant(tenant), kind, limit=10)

    budget, runs = with_app(call, read)
    if call.as_json:
        print_json({"budget": budget.as_dict(), "runs": runs})
    else:
        from holdfast.cli.limits_text import budget_text

        budget_text(budget, runs)


@budgets.command("set")
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("kind", metavar="KIND", type=name)
@click.option("--cents", type=amount, required=True, metavar="N|none", help="Per month; `none`: as the plan says.")
@by_option
@click.pass_obj
def set_budget(call: Call, tenant: str, kind: str, cents: float | str, by: str) -> None:
    """Cap what a tenant spends in a month, from now on. TENANT - means jobs without a tenant."""
    most = None if isinstance(cents, str) else cents
    _answer(call, with_app(call, lambda hf: hf.budgets.set(_tenant(tenant), kind, cents=most, by=by)))


@budgets.command("set-plan")
@click.argument("plan", metavar="PLAN", type=name)
@click.argument("kind", metavar="KIND", type=name)
@click.option("--cents", type=amount, required=True, metavar="N|none", help="Per month and tenant; `none`: no cap.")
@by_option
@click.pass_obj
def set_plan(call: Call, plan: str, kind: str, cents: float | str, by: str) -> None:
    """Cap what each tenant of a plan spends in a month, unless it has a cap of its own."""
    most = None if isinstance(cents, str) else cents
    with_app(call, lambda hf: hf.budgets.set_plan(plan, kind, cents=most, by=by))
    if call.as_json:
        print_json({"plan": plan, "kind": kind, "cents": most})
    else:
        say(f"Plan {plan}: {kind} {'without a cap' if most is None else f'{most:g} cents a month'}.")


@budgets.command()
@click.argument("tenant", metavar="TENANT", type=name)
@click.argument("kind", metavar="KIND", type=name)
@click.option("--cents", type=float, required=True, metavar="N", help="So much more this month; negative: less.")
@click.option("--reason", type=name, metavar="TEXT", help="For the record.")
@by_option
@click.pass_obj
def override(call: Call, tenant: str, kind: str, cents: float, reason: str | None, by: str) -> None:
    """Raise a cap for this month alone; jobs that were held go on."""
    _answer(call, with_app(call, lambda hf: hf.budgets.override(_tenant(tenant), kind, cents=cents, reason=reason, by=by)))


def _tenant(given: str) -> str | None:
    return None if given == NO_TENANT else given


def _answer(call: Call, budget: Budget) -> None:
    if call.as_json:
        print_json(budget.as_dict())
    else:
        _tell([budget])


def _tell(found: list[Budget]) -> None:
    from holdfast.cli.limits_text import budgets_text

    budgets_text(found)
