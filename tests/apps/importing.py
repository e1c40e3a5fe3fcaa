"""For tests of the import: one task that says what it was given."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast()


@hf.task
async def extract(project_id: str, number: int = 0) -> str:
    return f"{project_id} {number}"
