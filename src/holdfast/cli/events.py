"""`holdfast events`: the audit trail."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Command
from holdfast.cli.output import console, moment, print_json, print_table, say
from holdfast.cli.shared import name, with_app
from holdfast.reading import EVENTS_MAX


@click.command(cls=Command)
@click.option("--tenant", type=name, metavar="ID", help="Only those of a tenant.")
@click.option("--job", "job_id", metavar="ID", help="All of one job, oldest first.")
@click.option("--limit", type=click.IntRange(1, EVENTS_MAX), default=50, show_default=True)
@click.option("--before", type=click.IntRange(1), metavar="N", help="Go on after this event.")
@click.pass_obj
def events(call: Call, tenant: str | None, job_id: str | None, limit: int, before: int | None) -> None:
    """List what was unusual, newest first: cancels, retries, rescues, changed limits."""
    if job_id is not None and (tenant is not None or before is not None):
        raise click.UsageError("--job stands alone")
    if job_id is not None:
        found = with_app(call, lambda hf: hf.events(job_id))
        more = None
    else:
        found = with_app(call, lambda hf: hf.events(tenant=tenant, before=before, limit=limit))
        more = found[-1].id if len(found) == limit else None
    if call.as_json:
        print_json({"events": found, "next_before": more})
        return
    if not found:
        say("There is no such event; a job that works leaves none.")
        return
    from holdfast.cli.jobs_text import json_of

    columns = ("event", "at", "what", "by", "tenant", "job", "details")
    rows = (
        (
            str(event.id),
            moment(event.at),
            event.type,
            event.actor or "",
            event.tenant or "",
            event.job_id or "",
            json_of(event.data) if event.data else "",
        )
        for event in found
    )
    print_table(console(), columns, rows)
    if more is not None:
        say(f"More: --before {more}")
