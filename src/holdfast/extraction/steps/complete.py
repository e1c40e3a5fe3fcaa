"""Completion: the whole duration is told; what was not scanned is written down by the task, with the end of the job."""

from __future__ import annotations

from holdfast.extraction.context import ExtractionContext
from holdfast.pipeline import Done


async def complete(context: ExtractionContext) -> Done:
    seconds = sum(outcome.seconds for outcome in context.outcomes.values())
    return Done("Extraction complete ({duration})", duration=f"{seconds:.1f} s")
