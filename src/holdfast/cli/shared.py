"""What several commands have in common: an app that is closed again, names, numbers, who acts, and why something waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import click

from holdfast import codec
from holdfast.app import Holdfast
from holdfast.cli.apps import app_for_database
from holdfast.cli.call import Call
from holdfast.cli.output import print_json, printable, who
from holdfast.tenants import NAME_CHARS_MAX, NUMBER_MAX
from holdfast.why import Why

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def with_app(
    call: Call, work: Callable[[Holdfast], Coroutine[Any, Any, T]], find: Callable[[Call], Holdfast] = app_for_database
) -> T:
    hf = find(call)

    async def run() -> T:
        try:
            return await work(hf)
        finally:
            await hf.aclose()

    return asyncio.run(run())


def name(text: str) -> str:
    """As the type of an argument: no command asks about a tenant, plan or queue that can have no name."""
    try:
        return str(codec.text(NAME_CHARS_MAX)(text))
    except ValueError as wrong:
        raise click.BadParameter(f"it must be {wrong}") from None


def number_or(word: str) -> Callable[[str], int | str]:
    """As the type of an option: a whole number, or the word that stands for having none of its own."""

    def number(text: str) -> int | str:
        if text == word:
            return word
        try:
            return int(codec.whole(0, NUMBER_MAX)(int(text)))
        except ValueError:
            raise click.BadParameter(f"{text!r:.50} is neither `{word}` nor a whole number from 0 to {NUMBER_MAX}") from None

    return number


def by_option(command: F) -> F:
    option = click.option(
        "--by", metavar="NAME", type=name, default=who, show_default="your login name", help="Who does it, for the record."
    )
    return option(command)


def tell_why(call: Call, why: Why) -> None:
    if call.as_json:
        print_json(why)
    else:
        click.echo(printable(why.sentence))


def pairs(option: str, given: Sequence[str], shape: str = "OURS=THEIRS") -> dict[str, str]:
    """What a repeatable option such as `--map` says."""
    found: dict[str, str] = {}
    for text in given:
        ours, equals, theirs = text.partition("=")
        if not equals or not ours or not theirs or ours in found:
            raise click.UsageError(f"{option} {text!r:.80} must be {shape}, once for each {shape.partition('=')[0].lower()}.")
        found[ours] = theirs
    return found
