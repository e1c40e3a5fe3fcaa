"""`holdfast doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.apps import find_app_name, load_app
from holdfast.cli.call import Call, Command
from holdfast.cli.failures import FAILED, OK, AppUnusable
from holdfast.cli.output import print_json
from holdfast.doctor import app_check, examine
from holdfast.doctor_check import Check
from holdfast.redact import redact

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✕", "red")}


@click.command(cls=Command)
@click.pass_obj
def doctor(call: Call) -> int:
    """Find out what is wrong, and what to do about it.

    Exits with 1 if something must be mended.
    """
    name = find_app_name(call)
    broken: AppUnusable | None = None
    hf: Holdfast | None = None
    try:
        hf = load_app(name, call.database) if name else None
    except AppUnusable as error:
        broken = error
    tasks = {task.name for task in hf.tasks.values()} if hf else ()
    checks = asyncio.run(_examine(hf or Holdfast(call.database)))
    checks.insert(1, app_check(broken, name, len(tasks)))
    failed = any(check.status == "error" for check in checks)
    if call.as_json:
        print_json({"ok": not failed, "checks": checks})
    else:
        for check in checks:
            click.echo(redact(_line(check)))
    return FAILED if failed else OK


async def _examine(hf: Holdfast) -> list[Check]:
    try:
        return await examine(hf)
    finally:
        await hf.aclose()


def _line(check: Check) -> str:
    mark, colour = MARKS[check.status]
    advice = f"\n  {' ' * 14} → {check.advice}" if check.advice else ""
    return f"{click.style(mark, fg=colour, bold=True)} {check.name:<14} {check.message}{advice}"
