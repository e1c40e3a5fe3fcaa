"""The command itself: which subcommands there are, and what becomes of an error."""

from __future__ import annotations

import importlib
import importlib.util
import keyword
import sys
from collections.abc import Sequence

import click

from holdfast.cli.call import Call, global_options
from holdfast.cli.failures import INTERRUPTED, report
from holdfast.errors import ConfigError
from holdfast.version import VERSION

COMMANDS = (
    "init",
    "dev",
    "worker",
    "reaper",
    "server",
    "migrate",
    "doctor",
    "enqueue",
    "jobs",
    "events",
    "tenants",
    "plans",
    "queues",
    "machines",
    "budgets",
    "breakers",
    "schedules",
    "keys",
    "members",
    "webhooks",
    "adopt",
    "import",
    "completion",
)
"""Each is an attribute of the module of its own name; `import`, which Python keeps for itself, is `import_`."""

EXTRACTION = {"extract": "holdfast.extraction.command", "advisories": "holdfast.extraction.advisories.command"}
"""Commands of the built-in application, which has an extra of its own."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is called, and all of them only for the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(EXTRACTION if importlib.util.find_spec("cyclonedx") else ())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
            command: click.Command = getattr(importlib.import_module(f"holdfast.cli.{name}"), name)
            return command
        if cmd_name in EXTRACTION:
            return _with_global_options(_of_extraction(cmd_name))
        return _of_extension(ctx, cmd_name)


def _of_extraction(name: str) -> click.Command:
    try:
        command: click.Command = getattr(importlib.import_module(EXTRACTION[name]), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("holdfast"):
            raise
        raise ConfigError(f"`holdfast {name}` needs more packages: pip install 'holdfast[extraction]'") from error
    return command


def _of_extension(ctx: click.Context, name: str) -> click.Command | None:
    """From the app's own `hf.extend(commands=…)`; only a name that is none of ours costs the import of the app."""
    from holdfast.cli.apps import find_app_name, load_app

    call = ctx.find_object(Call) or Call()
    app_name = find_app_name(call)
    if app_name is None:
        return None
    commands = [one for joined in load_app(app_name, call.database).extensions.values() for one in joined.commands]
    return next((_with_global_options(command) for command in commands if command.name == name), None)


def _with_global_options(command: click.Command) -> click.Command:
    """Those that it does not have already, in a meaning of its own."""
    if not isinstance(command, click.Group):
        own = {word for parameter in command.params for word in parameter.opts}
        command.params += [option for option in global_options(hidden=True) if not own & set(option.opts)]
    return command


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="holdfast %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Durable background jobs on SQLite or PostgreSQL.

    The options below may stand before or after the command.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.params += global_options(hidden=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    call = Call()
    try:
        code = cli.main(args=arguments, prog_name="holdfast", standalone_mode=False, obj=call)
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        # A call that could not be parsed has not noted its options yet.
        return report(error, as_json=call.as_json or "--json" in arguments, debug=call.debug or "--debug" in arguments)
