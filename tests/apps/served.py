"""An application behind `holdfast server`."""

from __future__ import annotations

from holdfast import Holdfast, current

hf = Holdfast()


@hf.task(expose="member")
async def greet(name: str) -> str:
    current().log.info(f"greeting {name}")
    return f"hello {name}"
