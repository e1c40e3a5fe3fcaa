"""Whose month it is: budgets turn at midnight in the tenant's own time zone."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import BudgetExhausted, InvalidOption
from holdfast.limits.budget import month_of
from tests.cases.spending import at, calls_model, turn_to
from tests.cases.steps import drain


@pytest.mark.parametrize(
    ("now", "zone", "month", "ends"),
    [
        ("2026-10-31T23:30+00:00", "UTC", "2026-10", "2026-11-01T00:00+00:00"),
        ("2026-10-31T23:30+00:00", "Europe/Paris", "2026-11", "2026-12-01T00:00+01:00"),
        ("2026-10-31T22:30+00:00", "Europe/Paris", "2026-10", "2026-11-01T00:00+01:00"),
        ("2026-03-01T00:00+01:00", "Europe/Paris", "2026-03", "2026-04-01T00:00+02:00"),  # summer time begins in between
        ("2026-10-02T00:00+02:00", "Europe/Paris", "2026-10", "2026-11-01T00:00+01:00"),  # and ends
        ("2026-12-31T20:00-08:00", "America/Los_Angeles", "2026-12", "2027-01-01T00:00-08:00"),
        ("2026-11-01T08:30+00:00", "America/New_York", "2026-11", "2026-12-01T00:00-05:00"),  # on the very day of the change
        ("2026-02-28T10:00+00:00", "Pacific/Kiritimati", "2026-03", "2026-04-01T00:00+14:00"),
        ("2024-02-29T12:00+00:00", "Asia/Kathmandu", "2024-02", "2024-03-01T00:00+05:45"),
    ],
)
def test_a_month_begins_at_midnight_in_the_tenants_time_zone(now: str, zone: str, month: str, ends: str) -> None:
    """Also where clocks were changed in between, and where it is the next month already."""
    assert month_of(at(now), zone) == (month, at(ends))


async def test_a_tenants_time_zone_decides_when_its_budget_opens_again(hf_at: Holdfast, clock: ManualClock) -> None:
    """In Paris the month has turned, in UTC it has not."""
    turn_to(clock, "2026-10-31T22:59+00:00")
    await hf_at.tenants.set("paris", timezone="Europe/Paris")
    classify = calls_model(hf_at)
    for tenant in ("paris", "london"):
        await hf_at.budgets.set(tenant, "ai", cents=10)
        await classify.options(tenant=tenant).enqueue()
    await drain(hf_at)
    for tenant in ("paris", "london"):
        with pytest.raises(BudgetExhausted):
            await classify.options(tenant=tenant).enqueue()
    turn_to(clock, "2026-10-31T23:01+00:00")
    await classify.options(tenant="paris").enqueue()
    with pytest.raises(BudgetExhausted):
        await classify.options(tenant="london").enqueue()
    with pytest.raises(InvalidOption, match="timezone"):
        await hf_at.tenants.set("paris", timezone="Europe/Atlantis")
    assert (await hf_at.tenants.get("paris")).timezone == "Europe/Paris"
