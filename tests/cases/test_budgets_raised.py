"""Which jobs go on when a cap is raised, and what the state of a budget is called."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from holdfast.errors import InvalidOption
from holdfast.limits.budget import Budget
from tests.cases.spending import calls_model, turn_to
from tests.cases.steps import drain


async def held(hf: Holdfast, tenant: str) -> Any:
    """A job of a tenant that waits for the next month."""
    job = await hf.enqueue("classify", {}, tenant=tenant)
    await drain(hf)
    assert (await hf.why(job.id)).code == "budget_exhausted"
    return job


@pytest.fixture
async def capped(hf_at: Holdfast, clock: ManualClock) -> Holdfast:
    """A plan without money, two tenants with that plan, and a task that holds its jobs."""
    turn_to(clock, "2026-11-20T12:00+00:00")
    calls_model(hf_at, on_budget="hold")
    for tenant in ("acme", "globex"):
        await hf_at.tenants.set(tenant, plan="pro")
    await hf_at.budgets.set_plan("pro", "ai", cents=0)
    return hf_at


async def test_raising_the_cap_of_a_plan_lets_the_held_jobs_of_its_tenants_go(capped: Holdfast) -> None:
    """At once, and not at the end of the month."""
    jobs = [await held(capped, "acme"), await held(capped, "globex")]
    await capped.budgets.set_plan("pro", "ai", cents=100)
    await drain(capped)
    assert [(await capped.get(job.id)).state for job in jobs] == [State.COMPLETED, State.COMPLETED]


async def test_raising_one_tenants_cap_lets_only_its_own_held_jobs_go(capped: Holdfast) -> None:
    """Those of another tenant stay where they were, until the month turns."""
    mine, theirs = await held(capped, "acme"), await held(capped, "globex")
    before = (await capped.get(theirs.id)).run_at
    await capped.budgets.set("acme", "ai", cents=100)
    assert (await capped.get(theirs.id)).run_at == before
    await drain(capped)
    assert [(await capped.get(job.id)).state for job in (mine, theirs)] == [State.COMPLETED, State.QUEUED]


async def test_raising_a_cap_hurries_no_job_that_waits_for_its_own_time(capped: Holdfast) -> None:
    """A delay is no hold by the budget, whether the plan or the tenant gets more."""
    later = await capped.enqueue("classify", {}, tenant="acme", delay=3600)
    before = (await capped.get(later.id)).run_at
    await capped.budgets.set_plan("pro", "ai", cents=100)
    await capped.budgets.set("acme", "ai", cents=100)
    assert (await capped.get(later.id)).run_at == before
    await drain(capped)
    assert (await capped.get(later.id)).state is State.QUEUED


@pytest.mark.parametrize(
    ("cents", "spent", "status"),
    [
        (None, 900, "no_cap"),
        (100, 79, "ok"),
        (100, 80, "warning"),
        (100, 99, "warning"),
        (100, 100, "used_up"),
        (0, 0, "used_up"),
    ],
)
def test_the_status_of_a_budget_says_how_near_its_cap_is(cents: float | None, spent: float, status: str) -> None:
    """From 80 % on it warns; without a cap it never does."""
    given = {"tenant": "acme", "kind": "ai", "month": "2026-11", "late": 0.0, "reserved": 0.0, "extra": 0.0, "timezone": "UTC"}
    budget = Budget(**given, cents=cents, spent=spent, by_plan=False, resets_at=datetime.now(UTC))  # type: ignore[arg-type]
    assert (budget.status, budget.used_up) == (status, status == "used_up")


async def test_an_override_that_is_no_number_is_refused(hf: Holdfast) -> None:
    """With the sentence about what it must be."""
    await hf.budgets.set("acme", "ai", cents=10)
    with pytest.raises(InvalidOption, match="cents must be a number of cents"):
        await hf.budgets.override("acme", "ai", cents="many")  # type: ignore[arg-type]
