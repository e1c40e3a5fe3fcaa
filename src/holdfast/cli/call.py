"""What the global options of a call say, and the commands that understand them in any place."""

from __future__ import annotations

import dataclasses
from typing import Any

import click


@dataclasses.dataclass
class Call:
    """One call of the command."""

    app: str | None = None
    database: str | None = None
    as_json: bool = False
    debug: bool = False


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and parameter.name:
        setattr(context.find_object(Call), parameter.name, value)


def global_options(*, hidden: bool) -> list[click.Parameter]:
    kept: dict[str, Any] = {"expose_value": False, "callback": _keep, "hidden": hidden}
    app = "Where the tasks are; else HOLDFAST_APP, `app` in the settings file, tasks:hf."
    database = "sqlite:///jobs.db or postgresql://…; else HOLDFAST_DATABASE_URL."
    return [
        click.Option(["--app"], metavar="MODULE:NAME", help=app, **kept),
        click.Option(["--database"], metavar="URL", help=database, **kept),
        click.Option(["--json", "as_json"], is_flag=True, help="Answer and report errors in JSON.", **kept),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks.", **kept),
    ]


class Command(click.Command):
    """Takes the global options too, because nobody remembers on which side of the command they belong."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from holdfast.cli.examples import EXAMPLES  # only the help needs them

        super().format_epilog(ctx, formatter)
        example = EXAMPLES.get(ctx.command_path.partition(" ")[2])
        if example and "Example" not in (self.help or ""):
            with formatter.section("Example"):
                formatter.write(f"{' ' * formatter.current_indent}{example}\n")  # not wrapped: it is there to be copied


class Group(click.Group):
    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)
