"""What docs/schedules.md and docs/batches.md show, works as it stands there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

from holdfast import Holdfast

DOCS = Path(__file__).parents[2] / "docs"


async def run_blocks(page: str, known: dict[str, Any]) -> None:
    """Every Python block of a page, one after the other, `await` included."""
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL):
        code = compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        answer = eval(code, known)
        if inspect.isawaitable(answer):
            await answer


async def test_the_examples_of_schedules_work(hf: Holdfast) -> None:
    """Two schedules in code, one at run time that is paused, resumed, run and removed."""

    @hf.task
    async def send_digest(kind: str) -> None: ...

    known: dict[str, Any] = {"hf": hf}
    await run_blocks("schedules.md", known)
    assert set(hf.schedules.declared) == {("", "report"), ("", "sync-often")}
    assert (await hf.get(known["job"].id)).args == {"kind": "daily"}
    assert await hf.schedules.list(tenant="acme") == []


async def test_the_examples_of_batches_work(hf: Holdfast) -> None:
    """A batch with its last job, and a hook that is told of a failure."""

    @hf.task
    async def resize(image: int) -> None: ...

    @hf.task
    async def publish(album: str) -> None: ...

    known: dict[str, Any] = {"hf": hf, "resize": resize, "publish": publish, "images": range(3), "album": "x"}
    await run_blocks("batches.md", known)
    await known["charge"].options(max_attempts=1).enqueue(1)
    await hf.tenants.set("acme", plan="pro")
    await hf.run_worker(exit_when_idle=0.0)
    assert (await known["batch"].refresh()).ended
    assert {job.task for job in await hf.jobs(state="completed")} == {"resize", "publish", "charge"}
