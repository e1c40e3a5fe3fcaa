"""`holdfast enqueue`: one job from the command line, checked like any other."""

from __future__ import annotations

import asyncio
import contextlib
import typing
from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.apps import app_with_tasks
from holdfast.cli.call import Call, Command
from holdfast.cli.output import json_text, print_json, who
from holdfast.job import Job
from holdfast.task import Task


@click.command(cls=Command)
@click.argument("task")
@click.option("--args", "args_json", metavar="JSON", help="""All arguments as an object: '{"a": 1}'.""")
@click.option("-a", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument; the value is JSON or plain text.")
@click.option("--tenant")
@click.option("--queue")
@click.option("--priority", type=int, help="Higher is more urgent.")
@click.option("--delay", type=float, metavar="SECONDS")
@click.option("--unique", metavar="KEY", help="Only one active job has this key; a second call answers with the first job.")
@click.option("--order", metavar="KEY", help="Jobs with the same key run one at a time, in order.")
@click.option("--tag", "tags", multiple=True)
@click.option("--max-attempts", type=int)
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit with 1 if the job fails.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With --wait: give up after this long and exit with 124.")
@click.pass_obj
def enqueue(
    call: Call, /, task: str, args_json: str | None, pairs: tuple[str, ...], wait: bool, timeout: float | None, **options: Any
) -> None:
    """Enqueue one job of TASK and print its id."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait; give both")
    hf = app_with_tasks(call)
    wanted = hf.task_named(task)
    arguments = arguments_of(wanted, args_json, pairs)
    given = {name: value for name, value in options.items() if value not in (None, ())}
    asyncio.run(_enqueue(call, hf, wanted.name, arguments, given, timeout if wait else None, wait))


async def _enqueue(
    call: Call, hf: Holdfast, task: str, arguments: dict[str, Any], options: dict[str, Any], timeout: float | None, wait: bool
) -> None:
    try:
        job = await hf.enqueue(task, arguments, enqueued_by=who(), **options)
        if not call.as_json:
            click.echo(job.id)
        if wait:
            await _wait(call, hf, job, timeout)
        elif call.as_json:
            print_json(await _facts(hf, job))
    finally:
        await hf.aclose()


async def _wait(call: Call, hf: Holdfast, job: Job[Any], timeout: float | None) -> None:
    try:
        result = await job.result(timeout)
        if not call.as_json:
            click.echo(json_text(result))
    finally:
        if call.as_json:
            print_json(await _facts(hf, job))


async def _facts(hf: Holdfast, job: Job[Any]) -> dict[str, Any]:
    return {**(await hf.get(job.id)).as_dict(), "created": job.created}


def arguments_of(task: Task[..., Any], args_json: str | None, pairs: tuple[str, ...]) -> dict[str, Any]:
    """What --args and -a say."""
    return {**_object(args_json), **_named(task, pairs)}


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"this is not JSON: {error}", param_hint="--args") from None
    if not isinstance(found, dict):
        raise click.BadParameter("""it must be an object such as '{"a": 1}'""", param_hint="--args")
    return found


def _named(task: Task[..., Any], pairs: tuple[str, ...]) -> dict[str, Any]:
    """Text stays text where the task wants text: `-a zip=01234` is no number."""
    hints: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        hints = typing.get_type_hints(task.fn)
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not of the form name=value", param_hint="-a")
        values[name] = text if hints.get(name) in (str, str | None) else _json_or_text(text)
    return values


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
