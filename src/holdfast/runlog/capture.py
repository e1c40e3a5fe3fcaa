"""What a task says by `logging` and `print` reaches its run's log as well: told apart by the context that it is said in.

Nothing of the program's own logging is changed: no handler, no level that somebody has set, no propagation.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from holdfast.context import current_run
from holdfast.redact import redact
from holdfast.runlog.text import TRACEBACK_CHARS_MAX, shown, traceback_text

NOTHING = 1000
"""A level that no record has."""

_from_logging: ContextVar[bool] = ContextVar("holdfast_from_logging", default=False)
_lock = threading.RLock()
_watching = False
_printing = 0


def level_of(capture: tuple[str, ...]) -> int:
    return logging.DEBUG if "debug" in capture else logging.INFO if "logging" in capture else NOTHING


# -- logging -----------------------------------------------------------------------------------------------------------


def watch_logging() -> None:
    """Once per process. Not by a handler: one on the root logger would silence `logging.basicConfig`, and the warnings of
    programs that never set up logging."""
    global _watching
    with _lock:
        if _watching:  # not to be told by `callHandlers` itself: others wrap it too, and ours may be inside theirs
            return
        _watching = True
        call_handlers: Callable[[logging.Logger, logging.LogRecord], None] = logging.Logger.callHandlers

        def call_handlers_and_tell_the_run(logger: logging.Logger, record: logging.LogRecord) -> None:
            run = current_run.get(None)
            if run is None:
                return call_handlers(logger, record)
            link = run._link
            if record.levelno >= link.capture_level and not _is_ours(record):
                with contextlib.suppress(Exception):
                    _tell(link.log, record)
            token = _from_logging.set(True)  # what a handler now writes to stderr is the same line once more
            try:
                call_handlers(logger, record)
            finally:
                _from_logging.reset(token)

        logging.Logger.callHandlers = call_handlers_and_tell_the_run  # type: ignore[method-assign,assignment]
        root = logging.getLogger()
        if root.level == logging.WARNING and not root.handlers:
            root.setLevel(logging.INFO)  # nobody has set up logging: prints nothing more than before


def _is_ours(record: logging.LogRecord) -> bool:
    name = record.name
    return name == "holdfast" or name.startswith("holdfast.") or (name == "asyncio" and record.levelno < logging.WARNING)


def _tell(log: Callable[..., None], record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except Exception:  # arguments that do not fit their format
        message = f"{shown(record.msg)} {shown(record.args)}"
    metadata: dict[str, Any] = {"logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        said = f"{type(error).__name__}: {shown(error)}"[: 2 * TRACEBACK_CHARS_MAX]
        metadata["error"] = redact(said)[:TRACEBACK_CHARS_MAX]
        metadata["traceback"] = traceback_text(error, error.__traceback__)
    level = "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
    log(level, message, None, None, metadata)


# -- print -------------------------------------------------------------------------------------------------------------


class _Tap:
    """In place of `sys.stdout` or `sys.stderr`: what a run prints goes to its log instead, everybody else's passes."""

    def __init__(self, name: str, under: Any) -> None:
        self._name = name
        self._under = under

    def write(self, text: str) -> int:
        run = current_run.get(None)
        if run is None or not isinstance(text, str) or _from_logging.get() or not run._link.printed(self._name, text):
            written: int = self._under.write(text)
            return written
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


@contextlib.contextmanager
def prints_watched(end: Callable[[], None]) -> Iterator[None]:
    _watch_output(1)
    try:
        yield
    finally:
        _watch_output(-1)
        end()


def _watch_output(change: int) -> None:
    """As long as any run wants it. Others put something in their place too, pytest for one: theirs is left alone."""
    global _printing
    with _lock:
        _printing += change
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _printing and not isinstance(stream, _Tap):
                setattr(sys, name, _Tap(name, stream))
            elif not _printing and isinstance(stream, _Tap):
                setattr(sys, name, stream._under)


def _reset_after_fork() -> None:
    """The thread that held it may not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
