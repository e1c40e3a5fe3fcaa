"""Schedules over HTTP: what a change must say, and what it leaves when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.scene import Scene


@pytest.mark.parametrize("times", [{}, {"cron": "0 8 * * *", "seconds": 60}], ids=["neither", "both"])
async def test_a_schedule_has_either_cron_or_seconds(scene: Scene, times: dict[str, Any]) -> None:
    """Neither or both is 422 with a sentence, and makes no schedule."""
    body = {"task": "add", "args": {"a": 1}, **times}
    answer = await scene.call("acme admin", "PUT", "/api/schedules/nightly", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "option_invalid")
    assert answer.json()["detail"] == "A schedule has either cron or seconds; give one of them."
    assert await scene.hf.schedules.list(tenant="acme") == []


@pytest.mark.parametrize("times", [{"cron": "0 8 * * *"}, {"seconds": 60}], ids=["cron", "seconds"])
async def test_a_schedule_is_set_by_either(scene: Scene, times: dict[str, Any]) -> None:
    """And shown as it was set."""
    body = {"task": "add", "args": {"a": 1}, **times}
    answer = await scene.call("acme admin", "PUT", "/api/schedules/nightly", json=body)
    assert answer.status_code == 200, answer.text
    (made,) = await scene.hf.schedules.list(tenant="acme")
    assert (made.cron, made.seconds) == (times.get("cron"), times.get("seconds"))


async def test_arguments_of_schedules_are_shown_to_admins_alone(scene: Scene) -> None:
    """And to no one where the task is not known to this server: it may be one that hides them."""
    await scene.hf.schedules.set("here", "add", 3600, args={"a": 1}, tenant="acme")
    await scene.hf.schedules.set("gone", "add", 3600, args={"a": 1}, tenant="acme")
    async with scene.hf.transaction() as tx:
        table = "holdfast.schedules" if tx.store_kind == "postgres" else "holdfast_schedules"
        await tx.execute(f"UPDATE {table} SET task = 'elsewhere' WHERE name = 'gone'")
    shown = {}
    for role in ("viewer", "admin"):
        answer = await scene.get(f"acme {role}", "/api/schedules")
        shown[role] = {one["name"]: one["args"] for one in answer.json()["items"]}
    assert shown == {"viewer": {"here": None, "gone": None}, "admin": {"here": {"a": 1}, "gone": None}}
