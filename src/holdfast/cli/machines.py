"""`holdfast machines`: those that come and go with the work."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Group
from holdfast.cli.output import console, duration, print_json, print_table, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.processes.machines import JobUsage, MachineView, Usage


@click.group(cls=Group)
def machines() -> None:
    """See, start and stop machines; what they cost."""


@machines.command("list")
@click.pass_obj
def list_machines(call: Call) -> None:
    """List machines with state, age, jobs and estimated cost."""
    found = with_app(call, lambda hf: hf.machines.list())
    if call.as_json:
        print_json({"machines": found})
    elif found:
        _tell(found)
    else:
        say("There is no machine; the first job that nobody serves brings one.")


@machines.command()
@click.argument("machine", metavar="[NAME]", type=name, required=False)
@by_option
@click.pass_obj
def start(call: Call, machine: str | None, by: str) -> None:
    """Start this machine; without a name one of the pool, or a new one.

    Example: holdfast machines start
    """
    _answer(call, [with_app(call, lambda hf: hf.machines.start(machine, by=by))], "starts")


@machines.command()
@click.argument("machine", metavar="NAME", type=name)
@by_option
@click.pass_obj
def stop(call: Call, machine: str, by: str) -> None:
    """Stop a machine: its worker finishes what it can and gives back the rest.

    Example: holdfast machines stop pool-1
    """
    _answer(call, [with_app(call, lambda hf: hf.machines.stop(machine, by=by))], "stops")


@machines.command()
@click.argument("pool", metavar="N", type=click.IntRange(0, 1_000))
@by_option
@click.pass_obj
def scale(call: Call, pool: int, by: str) -> None:
    """Keep N machines in the pool, stopped while there is nothing to do.

    Example: holdfast machines scale 3
    """
    _answer(call, list(with_app(call, lambda hf: hf.machines.scale(pool, by=by))), "changed")


@machines.command()
@click.option("--month", metavar="YYYY-MM", help="This month only.")
@click.option("--tenant", type=name, metavar="NAME", help="This tenant only.")
@click.option("--job", metavar="ID", help="One job instead.")
@click.pass_obj
def usage(call: Call, month: str | None, tenant: str | None, job: str | None) -> None:
    """Show machine seconds and estimated money by month and tenant, or of one job.

    Example: holdfast machines usage --month 2026-11
    """
    if job is not None:
        of_job = with_app(call, lambda hf: hf.machines.usage_of_job(job, tenant=tenant))
        if call.as_json:
            print_json(of_job)
        else:
            _tell_job(of_job)
        return
    found = list(with_app(call, lambda hf: hf.machines.usage(month=month, tenant=tenant)))
    if call.as_json:
        print_json({"usage": found})
    elif found:
        _tell_usage(found)
    else:
        say("No machine time is on record.")


def _answer(call: Call, names: list[str], what: str) -> None:
    if call.as_json:
        print_json({"machines": names})
    else:
        say(f"{', '.join(names)}: {what}" if names else "Nothing had to change.")


def _tell(found: list[MachineView]) -> None:
    columns = ("machine", "kind", "state", "up", "cost", "jobs", "region", "said")
    rows = (
        (
            one.name,
            one.kind,
            one.state.value,
            "" if one.up_seconds is None else duration(one.up_seconds),
            "" if not one.estimated_cost else money(one.estimated_cost),
            ", ".join(one.job_ids),
            one.region or "",
            one.said,
        )
        for one in found
    )
    print_table(console(), columns, rows)


def _tell_usage(found: list[Usage]) -> None:
    columns = ("month", "of", "runs", "machine time", "estimated cost")
    rows = (
        (
            one.month,
            "all machines" if one.subject == "machines" else one.tenant or "(no tenant)",
            f"{one.runs:,}",
            duration(one.seconds),
            money(one.estimated_cost),
        )
        for one in found
    )
    print_table(console(), columns, rows)


def _tell_job(found: JobUsage) -> None:
    cost = money(found.estimated_cost)
    click.echo(f"{found.runs} runs on machines, {duration(found.seconds)}, {cost} at most")


def money(amount: float) -> str:
    return f"${amount:,.4f}" if amount < 1 else f"${amount:,.2f}"
