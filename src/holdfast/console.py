"""What a process prints by itself, without secrets: the lines of its log, and exceptions that nobody caught."""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from holdfast.redact import redact

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What begins a line, moves a cursor or turns the direction of text, and halves of characters."""


class RedactingFormatter(logging.Formatter):
    """The whole line and the traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class RedactingFilter(logging.Filter):
    """On a logger instead of a handler: the message is clean whatever handlers the application has set up."""

    def filter(self, record: logging.LogRecord) -> bool:
        clean(record)
        return True


def clean(record: logging.LogRecord) -> None:
    """Without secrets, and without what would move a terminal's cursor or begin a line of its own."""
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit: logging itself would print them as they are
        message = f"{record.msg} {_shown(record.args)}"
    record.msg, record.args = escaped(redact(message)), None
    if record.exc_info and not record.exc_text:
        text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(map(escaped, redact(text).split("\n")))


def escaped(text: str) -> str:
    """Names that people choose stand in the log: their control characters are shown and not obeyed."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_the_filter = RedactingFilter()
LOGGERS = ("holdfast", "holdfast.extraction", "holdfast.machines", "holdfast.machines.fly", "holdfast.web")
"""All that Holdfast logs to. Each has the filter, for the application may replace the factory of records."""


def guard_log() -> None:
    """Guard Holdfast's own log, also inside another program. A second call changes nothing.

    A filter of a logger does not see what its children log, so records of `holdfast.web` and the like are cleaned when they are
    made."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_the_filter)
    make = logging.getLogRecordFactory()
    if not isinstance(make, _CleanRecords):
        logging.setLogRecordFactory(_CleanRecords(make))


class _CleanRecords:
    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, name: str | None, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(name, *args, **kwargs)
        if name is not None and name.startswith("holdfast."):  # logging.makeLogRecord gives none
            clean(record)
        return record


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
