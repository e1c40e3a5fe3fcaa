"""A worker with several queues: strict order, or by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from holdfast import Holdfast

JOBS = 60


async def queues_in_the_order_of_their_runs(hf: Holdfast, queues: Sequence[str] | Mapping[str, int]) -> list[str]:
    seen: list[str] = []

    @hf.task(queue="mail")
    async def mail() -> None:
        seen.append("mail")

    @hf.task(queue="reports")
    async def report() -> None:
        seen.append("reports")

    await hf.enqueue_many([task.job() for task in (mail, report) for _ in range(JOBS)])
    await hf.run_worker(queues=queues, concurrency=1, exit_when_idle=0.0)
    return seen


async def test_a_list_of_queues_is_a_strict_order(hf: Holdfast) -> None:
    """The second queue starts when the first one is empty."""
    assert await queues_in_the_order_of_their_runs(hf, ["reports", "mail"]) == ["reports"] * JOBS + ["mail"] * JOBS


async def test_with_weights_a_backlog_of_one_queue_does_not_starve_the_other(hf: Holdfast) -> None:
    """The light queue gets its turns while the heavy one still has work, and all of both is done."""
    seen = await queues_in_the_order_of_their_runs(hf, {"mail": 3, "reports": 1})
    assert "reports" in seen[: seen.index("mail") + JOBS]
    assert sorted(seen) == ["mail"] * JOBS + ["reports"] * JOBS


async def test_queues_must_not_be_one_string(hf: Holdfast) -> None:
    """It would be taken for a list of letters."""
    from holdfast.errors import InvalidOption

    with pytest.raises(InvalidOption, match="must be a list"):
        await hf.run_worker(queues="mail")
