"""Tasks that both the release before and this one can run: nothing but what both know. Each says which of them ran it."""

from __future__ import annotations

import os
from typing import Any

from holdfast import Holdfast, current


def add_tasks(hf: Holdfast) -> list[Any]:
    @hf.task(queue="shared", max_attempts=3)
    async def which(number: int) -> str:
        current().log.info(f"number {number}")
        if number % 5 == 4 and current().attempt == 1:
            raise ValueError("the first attempt fails")
        return os.environ["RELEASE"]

    @hf.task(queue="old")
    async def which_old(number: int) -> str:
        return os.environ["RELEASE"]

    @hf.task(queue="new")
    async def which_new(number: int) -> str:
        return os.environ["RELEASE"]

    return [which, which_old, which_new]


hf = Holdfast()
add_tasks(hf)
