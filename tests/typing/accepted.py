"""What type checkers must infer of tasks. Checked, never run."""

from __future__ import annotations

from typing import assert_type

from holdfast.job import Job
from holdfast.task import JobSpec, TaskMaker


async def uses(task: TaskMaker) -> None:
    @task
    async def send(order_id: int, email: str = "") -> str:
        return email

    @task(queue="mail", max_attempts=5, backoff=(60, 300), permanent=[ValueError])
    async def send_with_options(order_id: int, email: str) -> str:
        return email

    @task
    def count(words: list[str]) -> int:
        return len(words)

    @task(timeout=5, backoff=lambda attempt: attempt * 2.0)
    def count_with_options(words: list[str]) -> int:
        return len(words)

    job = await send.enqueue(7, email="a")
    assert_type(job, Job[str])
    assert_type(await job.result(), str)
    assert_type(await send_with_options.enqueue(7, "a"), Job[str])
    assert_type(await send.options(priority=5, tenant="acme", tags=["x"]).enqueue(7, "a"), Job[str])
    assert_type(send.enqueue_sync(7), Job[str])
    assert_type(send.job(7), JobSpec[str])
    assert_type(await count.enqueue(["a"]), Job[int])
    assert_type(count_with_options.options(delay=1).enqueue_sync(["a"]), Job[int])
    assert_type(count_with_options.options(delay=1).enqueue_sync(["a"]).result_sync(), int)
    assert_type(await send(7), str)
    assert_type(count(["a"]), int)
