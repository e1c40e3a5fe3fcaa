"""Exit codes and error messages, all in one place."""

from __future__ import annotations

import traceback

import click

from holdfast import errors
from holdfast.cli.output import json_text, printable
from holdfast.redact import redact

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
STORAGE = 5
TIMED_OUT = 124
INTERRUPTED = 130


class AppUnusable(errors.ConfigError):
    """The application with the tasks cannot be found or imported."""

    code = "app_unusable"


class Refused(errors.HoldfastError):
    code = "refused"


EXIT_CODES: list[tuple[type[Exception], int]] = [
    (errors.UnknownTask, NOT_FOUND),
    (errors.JobNotFound, NOT_FOUND),
    (errors.RunNotFound, NOT_FOUND),
    (errors.NotFound, NOT_FOUND),
    (errors.DuplicateJob, REFUSED),
    (errors.QueueFull, REFUSED),
    (errors.JobConflict, REFUSED),
    (errors.Conflict, REFUSED),
    (errors.Forbidden, REFUSED),
    (Refused, REFUSED),
    (errors.ResultTimeout, TIMED_OUT),
    (errors.StorageError, STORAGE),
    (errors.InvalidJob, USAGE),
    (errors.ConfigError, USAGE),
    (click.ClickException, USAGE),
]
"""The first that fits. Whatever is not listed is a failure."""


def exit_code_of(error: Exception) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def report(error: Exception, *, as_json: bool, debug: bool) -> int:
    """One sentence on standard error, and the exit code that goes with it."""
    if debug:
        click.echo(redact("".join(traceback.format_exception(error))), err=True, nl=False)
    code, message = describe(error)
    if as_json:
        click.echo(json_text({"error": {"code": code, "message": message}}), err=True)
    else:
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {printable(message)}", err=True)
    return exit_code_of(error)


def describe(error: Exception) -> tuple[str, str]:
    if isinstance(error, errors.HoldfastError):
        return error.code, str(error)
    if isinstance(error, click.ClickException):
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "holdfast"
        return "usage", f"{error.format_message().rstrip('.')}; see `{where} --help`."
    if isinstance(error, MemoryError):
        return "out_of_memory", "This process has no memory left; give it more (ulimit -v, RLIMIT_AS), or less to do at a time."
    return "unexpected", f"{type(error).__name__}: {redact(str(error))}; this is a bug, --debug shows where."
