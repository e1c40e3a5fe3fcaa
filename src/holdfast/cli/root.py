"""The command itself: which subcommands there are, and what becomes of an error."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from holdfast.cli.call import Call, global_options
from holdfast.cli.failures import INTERRUPTED, report
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
    "keys",
    "members",
    "completion",
)
"""Each is an attribute of the module of its own name."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is called, and all of them only for the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"holdfast.cli.{cmd_name}"), cmd_name)
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
