"""`holdfast schedules`: what happens by the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_if_any, app_with_tasks
from holdfast.cli.call import Call, Group
from holdfast.cli.enqueue import arguments_of
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.people.common import LIST_MAX
from holdfast.schedule import Schedule

F = TypeVar("F", bound=Callable[..., Any])


def tenant_option(command: F) -> F:
    return click.option("--tenant", type=name, metavar="NAME", help="Whose schedule; else one without a tenant.")(command)


@click.group(cls=Group)
def schedules() -> None:
    """See, set, pause and run what happens by the clock."""


@schedules.command("list")
@click.option("--tenant", type=name, metavar="NAME", help="Of this tenant only.")
@click.option("--limit", type=click.IntRange(1, LIST_MAX), default=50, show_default=True)
@click.option("--cursor", nargs=2, metavar="TENANT NAME", default=("", ""), help="Go on after this one ('' for no tenant).")
@click.pass_obj
def list_schedules(call: Call, tenant: str | None, limit: int, cursor: tuple[str, str]) -> None:
    """List schedules with their next tick and what the last one came to."""
    found = with_app(call, lambda hf: hf.schedules.list(tenant=tenant, cursor=cursor, limit=limit))
    next_cursor = [found[-1].tenant or "", found[-1].name] if len(found) == limit else None
    if call.as_json:
        print_json({"schedules": found, "next_cursor": next_cursor})
        return
    if not found:
        say("There are no schedules; `holdfast schedules set NAME TASK --cron '0 8 * * mon-fri'` makes one.")
        return
    _table(found)
    if next_cursor:
        say(f"More: --cursor '{next_cursor[0]}' '{next_cursor[1]}'")


@schedules.command("set")
@click.argument("schedule", metavar="NAME", type=name)
@click.argument("task", metavar="TASK", type=name)
@click.option("--cron", metavar="EXPRESSION", help="Such as '0 8 * * mon-fri'.")
@click.option("--seconds", type=float, metavar="N", help="Every so many seconds instead.")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Paris.")
@click.option("--args", "args_json", metavar="JSON", help="""All arguments as an object: '{"a": 1}'.""")
@click.option("-a", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument; the value is JSON or plain text.")
@click.option("--missed", type=click.Choice(["skip", "once"]), default="skip", show_default=True, help="Ticks nobody kept.")
@tenant_option
@by_option
@click.pass_obj
def set_schedule(
    call: Call,
    schedule: str,
    task: str,
    cron: str | None,
    seconds: float | None,
    tz: str,
    args_json: str | None,
    pairs: tuple[str, ...],
    missed: Any,
    tenant: str | None,
    by: str,
) -> None:
    """Create or change a schedule."""
    if (cron is None) == (seconds is None):
        raise click.UsageError("Give either --cron or --seconds.")
    every: str | float = cron if cron is not None else seconds  # type: ignore[assignment]

    async def put(hf: Holdfast) -> Schedule:
        args = arguments_of(hf.task_named(task), args_json, pairs)
        return await hf.schedules.set(schedule, task, every, args=args, tz=tz, missed=missed, tenant=tenant, by=by)

    _answer(call, with_app(call, put, app_with_tasks))


@schedules.command()
@click.argument("schedule", metavar="NAME", type=name)
@tenant_option
@by_option
@click.pass_obj
def pause(call: Call, schedule: str, tenant: str | None, by: str) -> None:
    """Let a schedule rest; what falls into the pause is not made up for."""
    _answer(call, with_app(call, lambda hf: hf.schedules.pause(schedule, tenant=tenant, by=by)))


@schedules.command()
@click.argument("schedule", metavar="NAME", type=name)
@tenant_option
@by_option
@click.pass_obj
def resume(call: Call, schedule: str, tenant: str | None, by: str) -> None:
    """End a pause: the next tick is the next one that lies ahead."""
    _answer(call, with_app(call, lambda hf: hf.schedules.resume(schedule, tenant=tenant, by=by)))


@schedules.command()
@click.argument("schedule", metavar="NAME", type=name)
@tenant_option
@by_option
@click.pass_obj
def run(call: Call, schedule: str, tenant: str | None, by: str) -> None:
    """Make a schedule's job now; its ticks stay as they are."""
    job = with_app(call, lambda hf: hf.schedules.run_now(schedule, tenant=tenant, by=by), app_if_any)
    if call.as_json:
        print_json({"job_id": None if job is None else job.id})
    else:
        click.echo("a reaper does it within ten minutes" if job is None else job.id)


@schedules.command()
@click.argument("schedule", metavar="NAME", type=name)
@tenant_option
@by_option
@click.pass_obj
def remove(call: Call, schedule: str, tenant: str | None, by: str) -> None:
    """Remove a schedule; the jobs it has made stay."""
    _answer(call, with_app(call, lambda hf: hf.schedules.remove(schedule, tenant=tenant, by=by)))


def _answer(call: Call, schedule: Schedule) -> None:
    if call.as_json:
        print_json(schedule)
    else:
        _table([schedule])


def _table(found: list[Schedule]) -> None:
    from holdfast.cli.output import age, console, moment, print_table

    columns = ("name", "tenant", "task", "when", "next", "last", "job", "problem")
    rows = (
        (
            one.name,
            one.tenant or "",
            one.task or "(system)",
            f"every {one.seconds:g} s" if one.seconds else f"{one.cron} {one.tz}",
            "paused" if one.paused_at else moment(one.next_at),
            age(one.last_at),
            one.last_state or "",
            one.error or one.last_error or "",
        )
        for one in found
    )
    print_table(console(), columns, rows)
