"""`holdfast breakers`: whether the services that jobs need are well."""

from __future__ import annotations

import click

from holdfast.cli.call import Call, Group
from holdfast.cli.output import print_json, say
from holdfast.cli.shared import by_option, name, with_app
from holdfast.limits.breaker import BreakerState


@click.group(cls=Group)
def breakers() -> None:
    """See, open and close the circuit breakers of outside services.

    Example: holdfast breakers open linear --reason maintenance
    """


@breakers.command("list")
@click.pass_obj
def list_breakers(call: Call) -> None:
    """List the services that ever failed or were switched off, by name."""
    found = with_app(call, lambda hf: hf.breakers.list())
    if call.as_json:
        print_json({"breakers": found})
    elif found:
        _tell(found)
    else:
        say("No service has failed, so all breakers are closed.")


@breakers.command()
@click.argument("service", metavar="SERVICE", type=name)
@click.pass_obj
def show(call: Call, service: str) -> None:
    """Show a breaker: its state, since when, by whom and why."""
    _answer(call, with_app(call, lambda hf: hf.breakers.get(service)))


@breakers.command("open")
@click.argument("service", metavar="SERVICE", type=name)
@click.option("--reason", type=name, metavar="TEXT", help="For the record.")
@click.option(
    "--seconds", type=click.FloatRange(0), metavar="N", help="Until a probe may go; without it, until somebody closes it."
)
@by_option
@click.pass_obj
def open_breaker(call: Call, service: str, reason: str | None, seconds: float | None, by: str) -> None:
    """Let jobs that need a service wait, without costing attempts."""
    _answer(call, with_app(call, lambda hf: hf.breakers.open(service, reason=reason, seconds=seconds, by=by)))


@breakers.command("close")
@click.argument("service", metavar="SERVICE", type=name)
@by_option
@click.pass_obj
def close_breaker(call: Call, service: str, by: str) -> None:
    """Let jobs that need a service go on."""
    _answer(call, with_app(call, lambda hf: hf.breakers.close(service, by=by)))


def _answer(call: Call, state: BreakerState) -> None:
    if call.as_json:
        print_json(state)
    else:
        _tell([state])


def _tell(found: list[BreakerState]) -> None:
    from holdfast.cli.limits_text import breakers_text

    breakers_text(found)
