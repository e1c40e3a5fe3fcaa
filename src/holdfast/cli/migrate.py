"""`holdfast migrate`: bring the schema up to date."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import app_if_any
from holdfast.cli.call import Call, Command
from holdfast.cli.failures import FAILED, OK
from holdfast.cli.output import print_json
from holdfast.errors import NotMigrated


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if something is pending.")
@click.option("--rls", is_flag=True, help="Turn on row level security (PostgreSQL; the user must be allowed to create roles).")
@click.pass_obj
def migrate(call: Call, check: bool, rls: bool) -> int:
    """Bring the database's schema up to date; safe at every start."""
    hf = app_if_any(call)
    return asyncio.run(_check(call, hf) if check else _migrate(call, hf, rls))


async def _migrate(call: Call, hf: Holdfast, rls: bool) -> int:
    try:
        applied = await hf.migrate(rls=rls)
    finally:
        await hf.aclose()
    if call.as_json:
        print_json({"applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "up to date")
        if rls:
            click.echo("row level security is on; who reads which tenant is decided by holdfast.my_tenants()")
    return OK


async def _check(call: Call, hf: Holdfast) -> int:
    version: int | None = None
    message = "up to date"
    try:
        version = await hf.store.schema_version()
    except NotMigrated as error:
        message = str(error)
    finally:
        await hf.aclose()
    if call.as_json:
        print_json({"pending": version is None, "version": version})
    else:
        click.echo(message)
    return FAILED if version is None else OK
