"""What a process prints by itself, without secrets: the lines of its log, and exceptions that nobody caught."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any

from holdfast.redact import redact


class RedactingFormatter(logging.Formatter):
    """The whole line and the traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class RedactingFilter(logging.Filter):
    """On a logger instead of a handler: the message is clean whatever handlers the application has set up."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit: logging itself would print them as they are
            message = f"{record.msg} {_shown(record.args)}"
        record.msg, record.args = redact(message), None
        if record.exc_info and not record.exc_text:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True


_the_filter = RedactingFilter()


def guard_log() -> None:
    """Holdfast's own log, also inside somebody else's process; a second time changes nothing."""
    logging.getLogger("holdfast").addFilter(_the_filter)


def guard_console() -> None:
    """For a process of our own: nothing that Python prints by itself shows a secret."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(RedactingFormatter())
    sys.excepthook = lambda kind, error, trace: _print(error)
    threading.excepthook = lambda told: _print(told.exc_value, f"Exception in {_shown(told.thread)}:")
    sys.unraisablehook = lambda told: _print(told.exc_value, f"{told.err_msg or 'Exception ignored in'}: {_shown(told.object)}")


def _print(error: BaseException | None, before: str = "") -> None:
    if error is None or (before and isinstance(error, SystemExit)):
        return
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # an exception that cannot be shown
        text = f"{type(error).__name__}\n"
    print(redact(f"{before}\n{text}" if before else text), end="", file=sys.stderr, flush=True)


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except BaseException:
        return type(value).__name__
