"""`holdfast reaper`: bring back the jobs of dead workers, keep the schedules, and forget what is old."""

from __future__ import annotations

import asyncio
import signal

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_for_database
from holdfast.cli.call import Call, Command
from holdfast.cli.output import print_json, say
from holdfast.cli.process_log import log_to_stderr
from holdfast.database_url import parse_database_url
from holdfast.errors import StorageError
from holdfast.processes.reaper import Reaper, ended
from holdfast.processes.scheduler import Scheduler
from holdfast.processes.watchdog import watched
from holdfast.reap import reap_dead

RESCUE_SECONDS = 30.0


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="One pass, for cron.")
@click.option("--interval", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Else as configured (60).")
@click.pass_obj
def reaper(call: Call, once: bool, interval: float | None) -> None:
    """Bring back the jobs of dead workers; keep the schedules; forget what is old."""
    hf = app_for_database(call)
    log_to_stderr(hf.settings.log_format)
    asyncio.run(_once(call, hf) if once else reap_until_stopped(hf, interval))


async def _once(call: Call, hf: Holdfast) -> None:
    async with watched(hf.settings.watchdog):
        try:
            report, pruned = await Reaper(hf.store, hf.settings, start_machines=hf.machines.recover).one_pass()
        finally:
            await hf.aclose()
    counts = {
        "requeued": len(report.requeued),
        "failed": len(report.failed),
        "cancelled": len(report.cancelled),
        "orphaned_jobs_found": report.orphaned_jobs_found,
        "machines_started": report.machines_started,
        "pruned": pruned,
    }
    if report.adopted:
        requeued = sum(one.requeued for one in report.adopted)
        counts |= {"adopted_requeued": requeued, "adopted_failed": len(report.adopted) - requeued}
    if call.as_json:
        print_json(counts)
    else:
        click.echo(", ".join(f"{name} {count}" for name, count in counts.items()))


def rescue(call: Call) -> None:
    """For a supervisor whose child has died: the jobs of that child go back to the queue at once."""
    hf = app_for_database(call)
    log_to_stderr(hf.settings.log_format)
    asyncio.run(_rescue(hf))


async def _rescue(hf: Holdfast) -> None:
    try:
        async with asyncio.timeout(RESCUE_SECONDS):
            await reap_dead(hf.store, hf.settings)
    except (StorageError, TimeoutError) as error:
        say(f"The jobs of the process that died were not rescued, the next recovery pass does it: {error}")
    finally:
        await hf.aclose()


async def reap_until_stopped(hf: Holdfast, interval: float | None = None, *, supervised: bool = False) -> None:
    """Signals end it after the pass under way. A supervisor passes Ctrl+C on as SIGTERM, so that it counts once."""
    process, scheduler = Reaper(hf.store, hf.settings, interval, hf.machines.recover), Scheduler(hf)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, (lambda: None) if supervised else stopping.set)
    seconds = interval or hf.settings.reaper_interval
    async with watched(hf.settings.watchdog):
        say(f"Reaper: database {parse_database_url(hf.settings.database_url).safe}, every {seconds:g} s")
        try:
            async with hf.machines.running():
                passes = [asyncio.create_task(process.run()), asyncio.create_task(scheduler.run_listening())]
                signalled = asyncio.create_task(stopping.wait())
                await asyncio.wait([signalled, *passes], return_when=asyncio.FIRST_COMPLETED)
                process.stop()
                scheduler.stop()
                await ended(*passes)
                signalled.cancel()
        finally:
            await hf.aclose()
