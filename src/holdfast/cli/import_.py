"""`holdfast import`: take over jobs that wait elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from holdfast.adopt.redis_import import Imported, RedisImport, Shape
from holdfast.cli.apps import app_with_tasks
from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, printable, say
from holdfast.cli.shared import pairs


@click.group("import", cls=Group)
def import_() -> None:
    """Take over jobs that wait elsewhere.

    Example: holdfast import redis --list extraction-jobs --task extract --tenant organization_id
    """


@import_.command()
@click.option("--list", "name", required=True, metavar="KEY", help="The Redis list of JSON objects.")
@click.option("--task", required=True, metavar="NAME", help="What each element becomes a job of.")
@click.option(
    "--url", envvar="REDIS_URL", default="redis://127.0.0.1:6379/0", metavar="URL", help="Else REDIS_URL, else this machine."
)
@click.option("--map", "arguments", multiple=True, metavar="ARGUMENT=FIELD", help="Pass these fields; without it, all by name.")
@click.option("--tenant", metavar="FIELD", help="The field that names the tenant.")
@click.option("--project", metavar="FIELD", help="The field that names the project.")
@click.option("--from-right", is_flag=True, help="The list is filled with LPUSH and emptied with RPOP.")
@click.pass_obj
def redis(
    call: Call,
    name: str,
    task: str,
    url: str,
    arguments: Sequence[str],
    tenant: str | None,
    project: str | None,
    from_right: bool,
) -> None:
    """Move a Redis list of JSON jobs into the queue; none lost, none twice, safe to stop and go on.

    Example: holdfast import redis --list extraction-jobs --task extract --map repository=repo.url
    """
    hf = app_with_tasks(call)
    shape = Shape(task, pairs("--map", arguments, "ARGUMENT=FIELD"), tenant, project)
    work = RedisImport(hf, url, name, shape, from_right=from_right)

    async def run() -> None:
        try:
            await work.run()
        finally:
            await hf.aclose()

    try:
        asyncio.run(run())
    finally:
        _tell(call, work.report)


def _tell(call: Call, report: Imported) -> None:
    if call.as_json:
        print_json(report)
        return
    click.echo(f"enqueued {report.enqueued}, already there {report.already_there}, dead {report.dead}")
    if report.dead:
        say(f"The dead ones are in the list {printable(report.dead_list)}.")
