"""A pipeline for tests that kill its worker: the first attempt hangs in a tool, the next one goes through."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast import Holdfast, current
from holdfast.pipeline import Context, Done, Pipeline, Step

hf = Holdfast()

HANG = "import os, time; open('pid.part', 'w').write(str(os.getpid())); os.rename('pid.part', 'pid'); time.sleep(600)"


async def scan(context: Context) -> Done:
    if current().attempt == 1:
        await context.tool([sys.executable, "-c", HANG])
    return Done("scanned")


pipeline = Pipeline([Step("scan", scan)], workspaces=Path(os.environ["PIPED_WORKSPACES"]))


@hf.task(backoff=(0,))
async def piped() -> str:
    return (await pipeline.run(Context()))["scan"].message
