"""`holdfast worker`: run tasks."""

from __future__ import annotations

import os

import click

from holdfast.cli.call import Call, Command
from holdfast.cli.output import say
from holdfast.cli.reaper import rescue
from holdfast.cli.worker_process import Wish, WorkerProcess
from holdfast.processes.supervisor import Child, Supervisor


@click.command(cls=Command)
@click.option("--queues", metavar="A,B", help="Which queues, the first one first; or with weights, A=3,B=1.")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Jobs at a time.")
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option("--exit-when-idle", type=click.FloatRange(0), metavar="SECONDS", help="End when there was no job for this long.")
@click.option(
    "--max-lifetime", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="End after this long, draining in time."
)
@click.option("--no-reap", is_flag=True, help="Leave recovery to others.")
@click.option("--no-schedule", is_flag=True, help="Leave schedules and the ends of batches to others.")
@click.option("--grace", type=click.FloatRange(0), metavar="SECONDS", help="How long running jobs may take after SIGTERM.")
@click.pass_obj
def worker(
    call: Call,
    queues: str | None,
    concurrency: int,
    processes: int,
    exit_when_idle: float | None,
    max_lifetime: float | None,
    no_reap: bool,
    no_schedule: bool,
    grace: float | None,
) -> int:
    """Run jobs until stopped. SIGTERM or Ctrl+C: finish what runs; a second one gives the rest back at once."""
    wish = Wish(
        queues=_wanted_queues(queues),
        concurrency=concurrency,
        exit_when_idle=exit_when_idle,
        max_lifetime=max_lifetime,
        reap=not no_reap,
        schedule=not no_schedule,
        grace=grace,
    )
    if processes == 1 and os.getpid() != 1:
        return WorkerProcess(call, wish).run()
    # As process 1 of a container a worker would inherit orphans that only a supervisor may collect.
    children = [Child(f"worker {number}", WorkerProcess(call, wish, supervised=True).run) for number in range(1, processes + 1)]
    return Supervisor(children, say, None if no_reap else lambda: rescue(call)).run()


def _wanted_queues(text: str | None) -> list[str] | dict[str, int] | None:
    """`mail,reports` in this order, or `mail=3,reports=1` by weight."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not any("=" in name for name in names):
        return names or None
    weights = {}
    for name in names:
        queue, _, weight = name.rpartition("=")
        if not queue or not weight.isdecimal():
            raise click.BadParameter(
                f"{name!r} has no weight; write each queue as NAME=WEIGHT, or none.", param_hint="--queues"
            )
        weights[queue.strip()] = int(weight)
    return weights
