"""The commands of `holdfast` as click knows them, and whether a call as it is shown somewhere could be one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

from holdfast.cli.call import Call
from holdfast.cli.root import cli


def leaves(context: click.Context | None = None) -> Iterator[click.Context]:
    """A context for every command that does something; `command_path` are its words."""
    context = context or click.Context(cli, info_name="holdfast", obj=Call())
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(click.Context(found, parent=context, info_name=name))


def shown_calls(text: str) -> list[str]:
    """Every `holdfast …` of a page: in code, or typed at a prompt or in a shell's block."""
    found = re.findall(r"`(holdfast [^`\n]+)`", text)
    for block in re.findall(r"```(?:console|bash|sh|shell)\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            command = line.removeprefix("$ ").strip()
            found += [part.strip() for part in re.split(r"&&|\|\||[;|]\s", command) if part.strip().startswith("holdfast ")]
    return found


def why_not(call: str) -> str | None:
    """What is wrong with a call; None if there is such a command with such options. Placeholders count as values."""
    try:
        words = shlex.split(re.sub(r"[<>]\S*\s?\S*|&$", "", call), comments=True)[1:]
    except ValueError as error:
        return f"cannot be split: {error}"
    context = click.Context(cli, info_name="holdfast", obj=Call())
    try:
        return _why_not(context, words)
    except click.BadOptionUsage as error:
        return None if error.option_name == words[-1] else error.format_message()  # named without a value, to speak of it
    except click.ClickException as error:
        return error.format_message()


def _why_not(context: click.Context, words: Sequence[str]) -> str | None:
    command = context.command
    if isinstance(command, click.Group):
        parser = command.make_parser(context)
        parser.allow_interspersed_args = False
        _, rest, _ = parser.parse_args(list(words))
        if not rest or rest[0].isupper():
            return None
        if "|" in rest[0]:  # one of several words: each must be one
            return next(filter(None, (_why_not(context, [one, *rest[1:]]) for one in rest[0].split("|"))), None)
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        return _why_not(click.Context(found, parent=context, info_name=rest[0]), rest[1:])
    if {"-h", "--help"} & set(words):
        return None
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    if rest:
        return f"too many arguments: {' '.join(rest)}"
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and isinstance(values.get(parameter.name or ""), str):
            parameter.type.convert(values[parameter.name or ""], parameter, context)
    return None
