"""Where the log of a long-running process goes, and how its lines look: each says which request or run it belongs to."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.console import guard_console
from holdfast.context import current_run
from holdfast.correlation import request_id
from holdfast.redact import redact

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_to_stderr(log_format: str = "console") -> None:
    """Unless the app has set up logging itself. What a task logs is written too, from warnings on."""
    guard_console()
    ours = logging.getLogger("holdfast")
    if ours.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else ConsoleLines())
    logging.getLogger().addHandler(handler)
    ours.setLevel(logging.INFO)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The request and the run that the line belongs to, and what was given as `extra`."""
    facts: dict[str, Any] = {}
    if (request := request_id.get()) is not None:
        facts["request_id"] = request
    if (run := current_run.get(None)) is not None:
        facts |= {"job_id": run.job_id, "run_id": run.run_id, "task": run.task}
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}
    return facts | extra


class JsonLines(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **facts_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode({name: _plain(value) for name, value in line.items()}, enc_hook=str).decode()


class ConsoleLines(logging.Formatter):
    """For people; `extra` is left to the JSON form."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        facts = facts_of(record)
        named = [f"{name}={facts[name]}" for name in ("request_id", "job_id", "run_id") if name in facts]
        head, newline, rest = super().format(record).partition("\n")
        return redact(" ".join([head, *named]) + newline + rest)


def _plain(value: Any) -> Any:
    """Text without secrets, and without halves of surrogate pairs, which are no UTF-8."""
    return redact(value).encode(errors="replace").decode() if isinstance(value, str) else value
