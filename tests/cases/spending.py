"""What the cases about money share: a task that spends, the events it causes, and a clock that is set to a date."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import Holdfast, current
from holdfast.clock import ManualClock


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def turn_to(clock: ManualClock, text: str) -> None:
    clock.advance((at(text) - clock.now()).total_seconds())


def calls_model(hf: Holdfast, **options: Any) -> Any:
    """A task that pays for one call to a model."""

    @hf.task(name="classify", budget="ai", **options)
    async def classify(cents: float = 10) -> None:
        await current().spend(cents, "ai")

    return classify


async def events(hf: Holdfast, tenant: str | None = "acme") -> list[str]:
    """The types of what happened to its budgets, oldest first."""
    found = await hf.events(tenant=tenant) if tenant else await hf.events()
    return [event.type for event in reversed(found) if event.type.startswith("budget.")]
