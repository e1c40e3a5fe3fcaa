"""What the steps of a pipeline share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.context import current
from holdfast.errors import HoldfastError
from holdfast.pipeline.step import Outcome, Step
from holdfast.pipeline.tool import OUTPUT_BYTES_MAX, ToolResult, run_tool
from holdfast.pipeline.workspace import VARIABLE

MEMORY_WARNING_FRACTION = 0.8


class Context:
    """Made for one run of a pipeline; subclass it for what your steps hand to one another."""

    def __init__(self, **values: Any) -> None:
        self.values: dict[str, Any] = values
        """What fills the `{places}` of messages."""
        self.outcomes: dict[str, Outcome] = {}
        """How each step that has ended did, by name."""
        self._workspace: Path | None = None
        self._step: Step | None = None

    @property
    def workspace(self) -> Path:
        """A folder for this run alone, removed at its end."""
        if self._workspace is None:
            raise HoldfastError("the workspace exists only while the pipeline runs")
        return self._workspace

    @property
    def step(self) -> Step:
        """The step that runs now."""
        if self._step is None:
            raise HoldfastError("no step of a pipeline runs here")
        return self._step

    async def tool(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        on_line: Callable[[str], None] | None = None,
    ) -> ToolResult:
        """`run_tool` with the step's memory limit, in the workspace, with a home there; the step's deadline holds anyway."""
        run, limit = current(), self.step.memory_mb
        home = self.workspace / ".home"
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "TMPDIR": str(home), VARIABLE: str(self.workspace)}
        result = await run_tool(
            argv,
            cwd=self.workspace if cwd is None else cwd,
            env={**own, **(env or {})},
            secrets=secrets,
            timeout=timeout,
            memory_mb=limit,
            output_bytes_max=output_bytes_max,
            on_line=on_line,
        )
        if result.killed_by == "cancel":
            run.check_cancelled()
        if limit is not None and not result.out_of_memory and result.peak_mb > MEMORY_WARNING_FRACTION * limit:
            used = f"{result.peak_mb:.0f} of {limit:.0f} MB"
            run.log.warning(f"{result.tool} came close to its memory limit ({used})", step=self.step.name)
        return result
