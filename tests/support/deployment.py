"""Reading the deployment files, and asking the command line whether it would take what they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from holdfast.cli.call import Call
from holdfast.cli.root import cli

ROOT = Path(__file__).parents[2]


def documents(path: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")) if one]


def refusal(arguments: Sequence[str]) -> str | None:
    """What `holdfast ARGUMENTS` says is wrong with them, without running anything."""
    try:
        with cli.make_context("holdfast", list(arguments), obj=Call()) as context:
            name, command, rest = cli.resolve_command(context, list(arguments))
            assert command is not None
            command.make_context(name, rest, parent=context).close()
    except click.ClickException as error:
        return error.format_message()
    return None
