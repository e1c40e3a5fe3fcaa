"""Pipelines: steps that report, fail and are cancelled in one way, and outside tools that always end."""

from holdfast.pipeline.context import Context
from holdfast.pipeline.memory import says_out_of_memory
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.step import Done, Failure, Outcome, Partial, Step, StepFailed, StepUnavailable
from holdfast.pipeline.tool import ToolFailed, ToolMissing, ToolResult, reason_line, run_tool, run_tool_sync
from holdfast.redact import redact

__all__ = [
    "Context",
    "Done",
    "Failure",
    "Outcome",
    "Partial",
    "Pipeline",
    "Step",
    "StepFailed",
    "StepUnavailable",
    "ToolFailed",
    "ToolMissing",
    "ToolResult",
    "reason_line",
    "redact",
    "run_tool",
    "run_tool_sync",
    "says_out_of_memory",
]
