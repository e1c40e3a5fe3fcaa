"""Jobs, their runs and logs as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast import sealing
from holdfast.cli.log_text import in_colour, log_text
from holdfast.cli.output import STATE_STYLES, age, console, duration, moment, print_table, printable
from holdfast.job import Event, Job, LogLine, Run
from holdfast.redact import redact_json

ARGS_CHARS_MAX = 400


def list_text(jobs: Sequence[Job[Any]]) -> None:
    columns = ("id", "state", "task", "queue", "tenant", "attempt", "created", "error")
    print_table(
        console(),
        columns,
        (
            (
                job.id,
                job.status,
                job.task,
                job.queue,
                job.tenant or "",
                f"{job.attempt}/{job.max_attempts}",
                age(job.created_at),
                _error(job) if job.status in ("failed", "retrying") else "",
            )
            for job in jobs
        ),
    )


def show_text(job: Job[Any], runs: Sequence[Run], events: Sequence[Event], lines: Sequence[LogLine]) -> None:
    out = console()
    out.print(
        Text.assemble((job.status, STATE_STYLES.get(job.status, "bold")), "  ", (printable(job.task), "bold"), "  ", job.id)
    )
    for label, value in _facts(job):
        if value:
            out.print(Text.assemble((f"{label:<10} ", "dim"), printable(value)))
    if runs:
        _heading(out, "Runs")
        columns = ("run", "attempt", "outcome", "started", "took", "worker", "error")
        print_table(out, columns, (_run_row(run) for run in runs))
    if events:
        _heading(out, "Events")
        print_table(out, ("at", "what", "by", "details"), (_event_row(event) for event in events))
    if lines:
        _heading(out, f"Log of run {runs[0].run_no}, last lines")
        colour = in_colour()
        click.echo(log_text(lines, colour=colour), color=colour)


def _facts(job: Job[Any]) -> list[tuple[str, str]]:
    args = json_of(sealing.shown(job.args))
    progress = "" if job.progress is None else f"{job.progress:.0%} {job.stage or ''}".strip()
    return [
        ("args", args if len(args) <= ARGS_CHARS_MAX else f"{args[:ARGS_CHARS_MAX]}…"),
        ("result", "" if job.output is None else json_of(sealing.shown(job.output))),
        ("error", _error(job)),
        ("queue", f"{job.queue}, priority {job.priority}"),
        ("tenant", job.tenant or ""),
        ("attempt", f"{job.attempt} of {job.max_attempts}"),
        ("progress", progress),
        ("unique", job.unique_key or ""),
        ("order", job.order_key or ""),
        ("tags", ", ".join(job.tags)),
        ("worker", job.locked_by or ""),
        ("enqueued", f"{moment(job.created_at)}{f' by {job.enqueued_by}' if job.enqueued_by else ''}"),
        ("runs at", moment(job.run_at) if job.status in ("scheduled", "retrying") else ""),
        ("started", moment(job.started_at)),
        ("finished", moment(job.finished_at)),
        ("cancel", f"asked by {job.cancel_requested_by or 'somebody'}" if job.cancel_requested_at else ""),
    ]


def _run_row(run: Run) -> tuple[str, ...]:
    took = duration((run.finished_at - run.started_at).total_seconds()) if run.finished_at and run.started_at else ""
    error = run.error_message or run.error_code or ""
    return str(run.run_no), str(run.attempt), run.outcome, moment(run.started_at), took, run.worker or "", error


def _event_row(event: Event) -> tuple[str, ...]:
    return moment(event.at), event.type, event.actor or "", json_of(event.data) if event.data else ""


def _error(job: Job[Any]) -> str:
    return f"{job.error_code}: {job.error_message}" if job.error_message else job.error_code or ""


def _heading(out: Console, text: str) -> None:
    out.print()
    out.print(Text(text, style="bold"))


def json_of(value: Any) -> str:
    return redact_json(msgspec.json.encode(value)).decode()
