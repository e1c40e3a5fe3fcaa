"""`holdfast dev`: everything that a developer needs, in one process group."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.apps import app_for_database, app_with_tasks, find_app_name
from holdfast.cli.call import Call, Command
from holdfast.cli.output import say
from holdfast.cli.process_log import log_to_stderr
from holdfast.cli.reaper import reap_until_stopped
from holdfast.cli.worker_process import Wish, WorkerProcess
from holdfast.database_url import parse_database_url
from holdfast.processes.supervisor import Child, Supervisor, run_to_end
from holdfast.version import VERSION


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Of the HTTP API, on this machine only; else 8080, or any that is free."
)
@click.pass_obj
def dev(call: Call, port: int | None) -> int:
    """Migrate, then run a worker, a reaper, the HTTP API and the dashboard until Ctrl+C."""
    code = run_to_end(lambda: _prepare(call))
    if code:
        return code
    worker = WorkerProcess(call, Wish(reap=False), supervised=True)
    children = [Child("worker", worker.run), Child("reaper", lambda: _reap(call)), Child("server", lambda: _serve(call, port))]
    code = Supervisor(children, say).run()
    say("Stopped.")
    return code


def _prepare(call: Call) -> int:
    hf = app_with_tasks(call)

    async def migrate() -> list[str]:
        try:
            return await hf.migrate()
        finally:
            await hf.aclose()

    applied = asyncio.run(migrate())
    tasks = sorted({task.name for task in hf.tasks.values()})
    say(f"Holdfast {VERSION} for development; Ctrl+C stops it.")
    say(f"  app       {find_app_name(call)}: {', '.join(tasks)}")
    say(f"  database  {parse_database_url(hf.settings.database_url).safe} ({', '.join(applied) or 'up to date'})")
    return 0


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
