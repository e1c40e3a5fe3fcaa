"""Tenants, plans and queues as people read them: what is used of a limit is a small bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from holdfast.cli.output import age, console, moment, print_table
from holdfast.limits.breaker import BreakerState
from holdfast.limits.budget import Budget
from holdfast.store.protocol import Depth, Plan, Queue, Tenant
from holdfast.why import Why

BAR_CELLS = 10


def gauge(used: float, most: float) -> str:
    """The bar is full exactly where there is no room left, and empty exactly where nothing is used."""
    part = min(BAR_CELLS - 1, max(1, round(BAR_CELLS * used / max(1, most))))
    filled = BAR_CELLS if used >= most else part if used else 0
    return f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {used:,}/{most:,}"


def tenants_text(tenants: Sequence[Tenant]) -> None:
    columns = ("tenant", "plan", "running", "queue depth", "paused")
    rows = (
        (tenant.id, tenant.plan, gauge(tenant.running, tenant.limit), f"{tenant.queue_depth:,}", _paused(tenant))
        for tenant in tenants
    )
    print_table(console(), columns, rows)


def tenant_text(tenant: Tenant, depth: Depth, why: Why) -> None:
    out = console()
    out.print(Text.assemble((tenant.id, "bold"), "  plan ", tenant.plan))
    for label, used, most in (("running", tenant.running, tenant.limit), ("queued", depth.queued, depth.most)):
        style = "yellow" if used >= most else "green"
        out.print(Text.assemble((f"{label:<10} ", "dim"), (gauge(used, most), style)))
    if tenant.paused_at is not None:
        out.print(Text.assemble((f"{'paused':<10} ", "dim"), (_paused(tenant), "magenta")))
    out.print(Text.assemble((f"{'why':<10} ", "dim"), why.sentence), soft_wrap=True)


def plans_text(plans: Sequence[Plan]) -> None:
    columns = ("plan", "running", "queue depth", "weight")
    print_table(
        console(), columns, ((plan.name, f"{plan.max_running:,}", f"{plan.queue_depth:,}", str(plan.weight)) for plan in plans)
    )


def queues_text(queues: Sequence[Queue]) -> None:
    rows = (
        (queue.name, "no limit" if queue.limit is None else gauge(queue.running, queue.limit), _paused(queue))
        for queue in queues
    )
    print_table(console(), ("queue", "running", "paused"), rows)


def budgets_text(budgets: Sequence[Budget]) -> None:
    columns = ("tenant", "kind", "spent (cents)", "reserved", "state", "opens again")
    rows = (
        (
            budget.tenant or "-",
            budget.kind,
            f"{budget.spent:,}" if budget.cents is None else gauge(budget.spent, budget.cents),
            f"{budget.reserved:,}" if budget.reserved else "",
            budget.status.replace("_", " "),
            moment(budget.resets_at) if budget.used_up else "",
        )
        for budget in budgets
    )
    print_table(console(), columns, rows)


def budget_text(budget: Budget, runs: Sequence[dict[str, Any]]) -> None:
    budgets_text([budget])
    late = f", {budget.late:,} of it by runs that had lost their job" if budget.late else ""
    extra = f", {budget.extra:+,} by an override" if budget.extra else ""
    console().print(Text(f"Month {budget.month} ({budget.timezone}){extra}{late}.", style="dim"))
    if runs:
        rows = ((run["job_id"], f"{run['spent']:,}", age(run["created_at"])) for run in runs)
        print_table(console(), ("job", "spent", "when"), rows)


def breakers_text(states: Sequence[BreakerState]) -> None:
    columns = ("service", "state", "failures", "since", "by", "next probe", "reason")
    rows = (
        (
            one.name,
            one.state.replace("_", "-"),
            str(one.failures or ""),
            age(one.opened_at),
            one.opened_by or "",
            moment(one.until_at),
            one.reason or "",
        )
        for one in states
    )
    print_table(console(), columns, rows)


def _paused(what: Tenant | Queue) -> str:
    by = f" by {what.paused_by}" if what.paused_by else ""
    return f"{age(what.paused_at)}{by}" if what.paused_at else ""
