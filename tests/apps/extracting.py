"""An extraction for tests that kill its worker: the first attempt hangs in the middle of its sync, rows written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import Holdfast, current
from holdfast.extraction import app, sync
from holdfast.extraction.sql import Statements
from tests.support.extractions import Staged, components

NAMES = [f"package-{number:03}" for number in range(300)]

app.BACKOFF = (0.0,)
hf = Holdfast()
staged = Staged(hf)
staged.laid = {"dependencies": components(*NAMES)}


class HangingStatements(Statements):
    """Waits for ever after the first rows are written, while they are not committed."""

    async def __call__(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        found = await super().__call__(statement, *args)
        marker = Path(os.environ["EXTRACTING_MARKER"])
        if statement == os.environ["EXTRACTING_HANGS_AT"] and current().attempt == 1:
            marker.touch()
            await asyncio.Event().wait()
        return found


sync.Statements = HangingStatements  # type: ignore[misc]
