"""Run steps one after another: progress, log lines and cancellation between them, and a workspace that never stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.context import current
from holdfast.context import step as remembered_step
from holdfast.errors import Abort, ConfigError, JobCancelled, LeaseLost, RetryLater, Snooze
from holdfast.pipeline.context import Context
from holdfast.pipeline.step import Done, Outcome, Partial, Step, StepFailed, StepTimedOut, render
from holdfast.pipeline.threads import in_own_thread
from holdfast.pipeline.workspace import Workspace, sweep

STEERING = (Abort, RetryLater, Snooze, JobCancelled, LeaseLost)
"""What a step raises to steer the whole job; it goes through, also from an optional step."""


class Pipeline:
    """A list of steps. `workspaces` is where their folders are made; the system's place for temporary files, unless told."""

    def __init__(self, steps: Sequence[Step], *, workspaces: str | Path | None = None) -> None:
        self.steps = list(steps)
        self._workspaces = None if workspaces is None else Path(workspaces)
        names = [step.name for step in self.steps]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a pipeline needs steps, each with a name of its own, not {names!r}")

    async def run(self, context: Context) -> Mapping[str, Outcome]:
        """All steps, inside a task that a worker runs; how each ended is on the context, and returned."""
        run = current()
        await in_own_thread(lambda: sweep(self._workspaces))
        run.check_cancelled()
        workspace = Workspace.create(self._workspaces)
        context._workspace = workspace.path
        try:
            for place, step in enumerate(self.steps):
                run.check_cancelled()
                run.progress(place / len(self.steps), step.name)
                await self._run_step(step, context)
            run.check_cancelled()
            run.progress(1.0, self.steps[-1].name)
        finally:
            context._workspace = context._step = None
            if not await in_own_thread(workspace.remove):
                run.log.warning(f"The workspace {workspace.path} could not be removed; the next run tries again")
        return context.outcomes

    async def _run_step(self, step: Step, context: Context) -> None:
        context._step = step
        started = time.monotonic()
        error: Exception | None = None
        try:
            outcome = await _outcome_of(step, context)
        except STEERING:
            raise
        except Exception as raised:
            current().check_cancelled()  # what failed because it was told to stop has not failed
            error, outcome = raised, step.judge(raised, context.values)
        outcome.seconds = time.monotonic() - started
        context.outcomes[step.name] = outcome
        _tell(step, outcome)
        if error is None or not step.critical:
            return
        if outcome.unexpected:
            raise error
        if outcome.permanent:
            raise Abort(outcome.message, code=outcome.code or "step_failed") from error
        raise StepFailed(outcome.message, code=outcome.code, permanent=False) from error


async def _outcome_of(step: Step, context: Context) -> Outcome:
    deadline = asyncio.timeout(step.timeout)
    try:
        async with deadline:
            return await (_remembered(step, context) if step.remember else _fresh(step, context))
    except TimeoutError as error:
        if deadline.expired():
            raise StepTimedOut(f"took longer than the {step.timeout:g} s it may take") from error
        raise


async def _fresh(step: Step, context: Context) -> Outcome:
    if step.starting:
        current().log.info(render(step.starting, context.values), step=step.name)
    ended = await step.run(context) or Done()
    message = render(ended.message, {**context.values, **ended.counts})
    if isinstance(ended, Partial):
        return Outcome("partial", message, reasons=ended.reasons, counts=ended.counts)
    return Outcome("ok", message, counts=ended.counts)


async def _remembered(step: Step, context: Context) -> Outcome:
    """Only a step that did all is remembered; one that did a part may do better next time."""
    depends_on = step.remember(context) if callable(step.remember) else None
    ran = False

    async def work(_depends_on: Any) -> dict[str, Any]:
        nonlocal ran
        ran = True
        outcome = await _fresh(step, context)
        if outcome.status != "ok":
            raise _NotForKeeping(outcome)
        return {"message": outcome.message, "counts": outcome.counts}

    try:
        kept = await remembered_step(f"pipeline:{step.name}", work, depends_on)
    except _NotForKeeping as partial:
        return partial.outcome
    if not ran and step.recall is not None and not await step.recall(context):
        return await _fresh(step, context)
    return Outcome("ok", kept["message"], counts=kept["counts"], remembered=not ran)


class _NotForKeeping(Exception):
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


def _tell(step: Step, outcome: Outcome) -> None:
    log, duration_ms = current().log, outcome.seconds * 1000
    details: dict[str, Any] = {key: count for key, count in outcome.counts.items() if isinstance(count, int | float)}
    details = {"counts": details} if details else {}
    if outcome.remembered:
        log.info(f"{outcome.message or step.shown} (kept from an earlier attempt)", step=step.name, **details)
    elif outcome.status == "ok":
        log.success(outcome.message or f"{step.shown} done", step=step.name, duration_ms=duration_ms, **details)
    elif outcome.status == "partial":
        reasons = outcome.reasons
        log.warning(outcome.message, step=step.name, duration_ms=duration_ms, reasons=reasons, **details)
    else:
        say = log.error if step.critical else log.warning
        say(outcome.message, step=step.name, duration_ms=duration_ms, error_code=outcome.code)
