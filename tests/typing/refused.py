"""What type checkers must refuse: exactly the lines marked so. Checked, never run."""

from __future__ import annotations

from holdfast.task import TaskMaker


async def misuses(task: TaskMaker) -> None:
    @task
    async def send(order_id: int, email: str = "") -> str:
        return email

    await send.enqueue("x")  # refused
    await send.enqueue()  # refused
    await send.enqueue(7, mail="a")  # refused
    await send.options(priority=5).enqueue("x")  # refused
    send.options(priority="high")  # refused
    send.options(colour="red")  # refused
    send.job(7, 8)  # refused
    send.enqueue_sync(None)  # refused
    await send("x")  # refused
    number: int = await (await send.enqueue(7)).result()  # refused
    task(colour="red")  # refused
    task(timeout="soon")  # refused
    print(number)
