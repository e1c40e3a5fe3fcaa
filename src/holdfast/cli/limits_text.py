"""Tenants, plans and queues as people read them: what is used of a limit is a small bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from holdfast.cli.output import age, console, print_table
from holdfast.store.protocol import Depth, Plan, Queue, Tenant
from holdfast.why import Why

BAR_CELLS = 10


def gauge(used: int, most: int) -> str:
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


def _paused(what: Tenant | Queue) -> str:
    by = f" by {what.paused_by}" if what.paused_by else ""
    return f"{age(what.paused_at)}{by}" if what.paused_at else ""
