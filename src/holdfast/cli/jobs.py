"""`holdfast jobs`: look at jobs, ask why they wait, cancel them, retry them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.batch import Batch
from holdfast.cli.call import Call, Group
from holdfast.cli.failures import OK, describe, exit_code_of, report
from holdfast.cli.logs import logs
from holdfast.cli.output import print_json, say, who
from holdfast.cli.shared import tell_why, with_app
from holdfast.errors import HoldfastError
from holdfast.ids import is_uuid
from holdfast.job import Job, LogLine, Run, State
from holdfast.looking import LIST_MAX

LAST_LINES = 20


@click.group(cls=Group)
def jobs() -> None:
    """Look at jobs, cancel them, retry them."""


@jobs.command("list")
@click.option("--state", type=click.Choice([state.value for state in State]))
@click.option("--queue")
@click.option("--task")
@click.option("--tenant")
@click.option("--tag")
@click.option("--batch", metavar="ID", help="The jobs of one batch, and how far it is.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@click.option("--cursor", metavar="ID", help="Go on after this job.")
@click.pass_obj
def list_jobs(call: Call, /, limit: int, cursor: str | None, **where: str | None) -> None:
    """List jobs, newest first."""
    if cursor is not None and not is_uuid(cursor):
        raise click.BadParameter("it must be the id of a job", param_hint="--cursor")

    async def read(hf: Holdfast) -> tuple[list[Job[Any]], Batch | None]:
        batch = await hf.batches.get(where["batch"]) if where["batch"] else None
        return await hf.jobs(cursor=cursor, limit=limit, **where), batch

    found, batch = with_app(call, read)
    next_cursor = found[-1].id if len(found) == limit else None
    if call.as_json:
        shown = {} if batch is None else {"batch": batch.as_dict()}
        print_json({**shown, "jobs": [job.as_dict() for job in found], "next_cursor": next_cursor})
        return
    if batch is not None:
        counts = ", ".join(f"{count} {state}" for state, count in batch.counts.items() if count)
        say(f"Batch of {batch.total} jobs, {batch.progress:.0%} ended{': ' if counts else ''}{counts}")
    if not found:
        say("No job matches." if any(where.values()) else "There are no jobs yet; `holdfast enqueue TASK` makes one.")
        return
    from holdfast.cli.jobs_text import list_text

    list_text(found)
    if next_cursor:
        say(f"More: --cursor {next_cursor}")


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.pass_obj
def show(call: Call, job_id: str) -> None:
    """Show a job with its runs, its events and its last log lines."""

    async def read(hf: Holdfast) -> tuple[Job[Any], list[Run], list[Any], list[LogLine]]:
        job = await hf.get(job_id)
        runs = await hf.runs(job_id)
        lines = await hf.logs(runs[0].run_id, newest=True, limit=LAST_LINES) if runs else []
        return job, runs, await hf.events(job_id), lines

    job, runs, events, lines = with_app(call, read)
    if call.as_json:
        print_json({"job": job.as_dict(), "runs": runs, "events": events, "logs": lines})
    else:
        from holdfast.cli.jobs_text import show_text

        show_text(job, runs, events, lines)


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.pass_obj
def why(call: Call, job_id: str) -> None:
    """Say in one sentence why a job is waiting."""
    tell_why(call, with_app(call, lambda hf: hf.why(job_id)))


jobs.add_command(logs)


@jobs.command()
@click.argument("job_ids", metavar="ID…", nargs=-1, required=True)
@click.pass_obj
def cancel(call: Call, job_ids: tuple[str, ...]) -> int:
    """Cancel jobs: queued ones at once, running ones as soon as they let themselves be stopped."""
    return _act_on_each(call, job_ids, lambda hf, job_id: hf.cancel(job_id, by=who()))


@jobs.command()
@click.argument("job_ids", metavar="ID…", nargs=-1, required=True)
@click.pass_obj
def retry(call: Call, job_ids: tuple[str, ...]) -> int:
    """Queue failed or cancelled jobs anew; their attempts start again at 0."""
    return _act_on_each(call, job_ids, lambda hf, job_id: hf.retry(job_id, by=who()))


def _act_on_each(call: Call, job_ids: tuple[str, ...], act: Callable[[Holdfast, str], Awaitable[Job[Any]]]) -> int:
    """Each is tried, whatever becomes of the others; the first refusal decides the exit code."""

    async def act_on_all(hf: Holdfast) -> tuple[list[Job[Any]], list[tuple[str, HoldfastError]]]:
        done, refused = [], []
        for job_id in job_ids:
            try:
                done.append(await act(hf, job_id))
            except HoldfastError as error:
                refused.append((job_id, error))
        return done, refused

    done, refused = with_app(call, act_on_all)
    if call.as_json:
        refusals = [{"id": job_id, **dict(zip(("code", "message"), describe(error), strict=True))} for job_id, error in refused]
        print_json({"jobs": [job.as_dict() for job in done], "errors": refusals})
    else:
        for job in done:
            click.echo(f"{job.id} {job.status}")
    for _, error in refused:
        report(error, as_json=call.as_json, debug=call.debug)
    return exit_code_of(refused[0][1]) if refused else OK
