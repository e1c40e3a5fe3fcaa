"""`holdfast dev`: everything that a developer needs, in one process group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_for_database, app_with_tasks, find_app_name
from holdfast.cli.call import Call, Command
from holdfast.cli.init import SEEDED
from holdfast.cli.output import say
from holdfast.cli.process_log import log_to_stderr
from holdfast.cli.reaper import reap_until_stopped, rescue
from holdfast.cli.worker_process import Wish, WorkerProcess
from holdfast.database_url import parse_database_url
from holdfast.processes.supervisor import Child, Supervisor, run_to_end
from holdfast.processes.watchdog import watched
from holdfast.settings import load_settings
from holdfast.version import VERSION

END_SECONDS = 10.0
"""Beside the grace period, for local machines to end."""


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Of the HTTP API, on this machine only; else 8080, or any that is free."
)
@click.pass_obj
def dev(call: Call, port: int | None) -> int:
    """Migrate, then run workers on demand, a reaper, the HTTP API and the dashboard until Ctrl+C."""
    if load_settings().origin("machine_provider") == "default":
        os.environ["HOLDFAST_MACHINE_PROVIDER"] = "local"
    code = run_to_end(lambda: _prepare(call))
    if code:
        return code
    children = [
        Child("worker", lambda: _work(call)),
        Child("reaper", lambda: _reap(call)),
        Child("server", lambda: _serve(call, port)),
    ]
    code = Supervisor(children, say, lambda: rescue(call)).run()
    say("Stopped.")
    return code


def _work(call: Call) -> int | None:
    """A worker; or, with a provider, machines that come when there is work and are taken along at the end."""
    hf = app_with_tasks(call)
    if not hf.machines.configured:
        return WorkerProcess(call, Wish(reap=False), supervised=True).run()
    log_to_stderr(hf.settings.log_format)
    say(f"Machines: {hf.settings.machine_provider}, started when there is work, at most {hf.settings.machine_max}")
    asyncio.run(_run_machines(hf))
    return 0


async def _run_machines(hf: Holdfast) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        async with watched(hf.settings.watchdog):
            async with hf.machines.running():
                await told.wait()
            if hf.settings.machine_provider == "local":
                await _take_along(hf, told)
    finally:
        await hf.aclose()


async def _take_along(hf: Holdfast, told: asyncio.Event) -> None:
    """As with a worker: a second signal ends the grace period of what still runs."""
    until = loop_time() + hf.settings.grace + END_SECONDS
    while await hf.machines.stop_all() and loop_time() < until:
        told.clear()
        while loop_time() < until and not told.is_set() and await hf.machines.up():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await told.wait()


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def _prepare(call: Call) -> int:
    hf = app_with_tasks(call)

    async def migrate() -> tuple[list[str], str | None]:
        try:
            applied = await hf.migrate()
            is_new = any(name.startswith("0001_") for name in applied)
            return applied, await _seed(hf) if is_new and SEEDED in hf.tasks else None
        finally:
            await hf.aclose()

    applied, seeded = asyncio.run(migrate())
    tasks = sorted({task.name for task in hf.tasks.values()})
    say(f"Holdfast {VERSION} for development; Ctrl+C stops it.")
    say(f"  app       {find_app_name(call)}: {', '.join(tasks)}")
    say(f"  database  {parse_database_url(hf.settings.database_url).safe} ({', '.join(applied) or 'up to date'})")
    if seeded:
        say(f"  enqueued  {SEEDED}, which fails once: press Retry in the dashboard, or `holdfast jobs retry {seeded}`")
    return 0


async def _seed(hf: Holdfast) -> str:
    async with hf.transaction() as tx:  # with tx= nobody starts a machine for it now, in a process that ends at once
        return (await hf.enqueue(SEEDED, tx=tx)).id


def _reap(call: Call) -> int:
    hf = app_for_database(call)
    log_to_stderr(hf.settings.log_format)
    asyncio.run(reap_until_stopped(hf, supervised=True))
    return 0


def _serve(call: Call, port: int | None) -> int:
    try:
        from holdfast.web.serving import serve_for_development
    except ModuleNotFoundError as error:
        say(f"The HTTP API is not served: it needs {error.name}, which pip install 'holdfast[web]' brings.")
        return 0
    hf = app_with_tasks(call)
    log_to_stderr(hf.settings.log_format)
    asyncio.run(serve_for_development(hf, port, say))
    return 0
