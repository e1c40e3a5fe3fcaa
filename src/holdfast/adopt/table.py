"""A table of the team's own: what it is called, and what its columns and status words are called."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import ConfigError

COLUMNS = (
    "id",
    "status",
    "locked_by",
    "lease_expires_at",
    "last_heartbeat_at",
    "started_at",
    "attempt_count",
    "max_attempts",
    "fail_code",
    "fail_reason",
    "stage",
    "next_earliest_run_at",
    "expected_duration_ms",
)
WORDS = ("queued", "running", "completed", "failed")
NAME_CHARS_MAX = 200


class Rescued(msgspec.Struct, kw_only=True):
    """A row that the reaper has queued again, or given up."""

    table: str
    id: Any
    requeued: bool
    reason: str
    """`lease_expired` or `deadline_exceeded`."""
    locked_by: str | None
    stage: str | None
    attempt: int
    max_attempts: int
    delay: float = 0.0
    """Seconds until it may run again."""


Republish = Callable[[Sequence[Rescued]], Awaitable[None] | None]


@dataclasses.dataclass(frozen=True)
class AdoptedTable:
    """A table for the reaper to look after: `Holdfast(adopted=[AdoptedTable("asr_jobs", columns={"status": "state"})])`."""

    table: str
    """As it is written in the database, with its schema where that is not on the search path: `audio.asr_jobs`."""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict, kw_only=True)
    """Ours -> theirs, where they differ."""
    words: Mapping[str, str] = dataclasses.field(default_factory=dict, kw_only=True)
    """What `queued`, `running`, `completed` and `failed` are called in the status column, where that differs."""
    events: str = dataclasses.field(default="job_events", kw_only=True)
    on_requeued: Republish | None = dataclasses.field(default=None, kw_only=True)
    """Called with the rows that were queued again, after the commit: to tell a dispatcher of one's own."""

    def __post_init__(self) -> None:
        for what, name in (("The table", self.table), ("The table of events", self.events)):
            _check_name(what, name)
        _check_known("column", self.columns, COLUMNS)
        _check_known("status word", self.words, WORDS)

    def column(self, ours: str) -> str:
        return self.columns.get(ours, ours)

    def word(self, ours: str) -> str:
        return self.words.get(ours, ours)

    def mapping(self) -> str:
        return msgspec.json.encode({"columns": dict(self.columns), "words": dict(self.words), "events": self.events}).decode()


def stored_table(name: str, mapping: str) -> AdoptedTable:
    return AdoptedTable(name, **msgspec.json.decode(mapping))


def quoted(name: str) -> str:
    """An identifier that stays one, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _check_name(what: str, name: object) -> None:
    try:
        codec.text(NAME_CHARS_MAX)(name)
        if not str(name).strip():
            raise ValueError(name)
    except ValueError:
        raise ConfigError(
            f"{what} is named by text of 1 to {NAME_CHARS_MAX} characters without NUL, not {str(name)[:80]!r}."
        ) from None


def _check_known(what: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    for ours, theirs in given.items():
        if ours not in known:
            near = difflib.get_close_matches(str(ours), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
            raise ConfigError(f"There is no {what} {str(ours)[:80]!r} to be mapped; {hint}")
        _check_name(f"The {what} {ours}", theirs)
    meanings = [given.get(ours, ours) for ours in known]
    twice = next((name for name in meanings if meanings.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"Two {what}s are mapped to {twice!r}; each needs one of its own.")
