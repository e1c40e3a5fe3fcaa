"""`holdfast queues`: limits and pauses of whole queues."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, number_or, with_app
from holdfast.store.protocol import Queue

NO_LIMIT = "none"


@click.group(cls=Group)
def queues() -> None:
    """See and set limits of whole queues; pause them."""


@queues.command("list")
@click.pass_obj
def list_queues(call: Call) -> None:
    """List the queues that were set, by name."""
    found = with_app(call, lambda hf: hf.queues.list())
    if call.as_json:
        print_json({"queues": found})
    elif found:
        _tell(found)
    else:
        say("No queue was set, so none has a limit; `holdfast queues set NAME --limit N` gives it one.")


@queues.command()
@click.option("--tenant", type=name, metavar="NAME", help="This tenant's jobs only; without how fast they go.")
@click.pass_obj
def stats(call: Call, tenant: str | None) -> None:
    """Show what waits and runs, how fast, and what needs attention."""
    found = with_app(call, lambda hf: hf.stats(tenant=tenant))
    if call.as_json:
        print_json(found)
    else:
        from holdfast.cli.stats_text import stats_text

        stats_text(found)


@queues.command("set")
@click.argument("queue", metavar="NAME", type=name)
@click.option("--limit", type=number_or(NO_LIMIT), required=True, metavar="N|none", help="Jobs of this queue at a time.")
@by_option
@click.pass_obj
def set_queue(call: Call, queue: str, limit: int | str, by: str) -> None:
    """Limit how many jobs of a queue run at once, whatever the number of workers."""
    most = limit if isinstance(limit, int) else None
    _answer(call, with_app(call, lambda hf: hf.queues.set(queue, limit=most, by=by)))


@queues.command()
@click.argument("queue", metavar="NAME", type=name)
@by_option
@click.pass_obj
def pause(call: Call, queue: str, by: str) -> None:
    """Start no more jobs of a queue; what runs goes on."""
    _answer(call, with_app(call, lambda hf: hf.queues.pause(queue, by=by)))


@queues.command()
@click.argument("queue", metavar="NAME", type=name)
@by_option
@click.pass_obj
def resume(call: Call, queue: str, by: str) -> None:
    """End a pause."""
    _answer(call, with_app(call, lambda hf: hf.queues.resume(queue, by=by)))


def _answer(call: Call, queue: Queue) -> None:
    if call.as_json:
        print_json(queue)
    else:
        _tell([queue])


def _tell(found: list[Queue]) -> None:
    from holdfast.cli.limits_text import queues_text

    queues_text(found)
