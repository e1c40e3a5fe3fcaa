"""Steps of an extraction in a real worker, with the programs that a test puts on PATH."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Holdfast
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.pipeline import STEPS
from holdfast.job import Job, LogLine
from holdfast.pipeline import Outcome, Pipeline, Step

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "extraction"


def step_named(name: str, **changes: Any) -> Step:
    found = next(step for step in STEPS if step.name == name)
    given = {key: getattr(found, key) for key in Step.__slots__}
    return Step(**{**given, **changes})


class Ran(msgspec.Struct):
    outcomes: dict[str, Outcome]
    job: Job[Any]
    lines: list[LogLine]
    left_behind: list[str]

    @property
    def last(self) -> Outcome:
        return list(self.outcomes.values())[-1]

    @property
    def said(self) -> str:
        return "\n".join(f"{line.message} {line.metadata}" for line in self.lines)


async def run_steps(url: str, steps: Sequence[Step], context: ExtractionContext, workspaces: Path) -> Ran:
    hf = Holdfast(url)
    pipeline = Pipeline(steps, workspaces=workspaces)

    @hf.task(max_attempts=1)
    async def work() -> None:
        await pipeline.run(context)

    try:
        job = await work.enqueue()
        await hf.run_worker(exit_when_idle=0.0)
        lines = await hf.logs((await hf.runs(job.id))[0].run_id)
        left = sorted(path.name for path in workspaces.iterdir()) if workspaces.exists() else []
        return Ran(context.outcomes, await hf.get(job.id), lines, left)
    finally:
        await hf.aclose()


def program(folder: Path, name: str, code: str) -> None:
    """An executable called `name` that runs this Python code; `arguments` is what it was called with."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable} -I\nimport json, os, sys\narguments = sys.argv[1:]\n{code}\n", encoding="utf-8")
    path.chmod(0o755)


def output_of(name: str) -> str:
    """What a real tool wrote, recorded."""
    return (FIXTURES / "tools" / name).read_text(encoding="utf-8")
