"""What a pipeline is made of: steps, how they may end, and the table of failures that a step recognises (pure)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from holdfast.errors import ConfigError, HoldfastError
from holdfast.pipeline.tool import ToolFailed, ToolMissing, ToolResult, reason_line
from holdfast.redact import redact

Status = Literal["ok", "partial", "failed", "unavailable"]
Trouble = Literal["timeout", "memory", "missing"]

SEARCHED_CHARS_MAX = 100_000
_PLACE = re.compile(r"\{(\w+)\}")
_SUFFIX = {"timeout": "timed_out", "memory": "out_of_memory", "missing": "unavailable", None: "failed"}


class Done:
    """The step did all it was to do; the counts fill the message's `{places}` and are kept."""

    def __init__(self, message: str = "", /, **counts: Any) -> None:
        self.message = message
        self.counts = counts


class Partial(Done):
    """The step did a part; the reasons say what is missing and why."""

    def __init__(self, message: str, reasons: Sequence[str], /, **counts: Any) -> None:
        super().__init__(message, **counts)
        self.reasons = list(reasons)


class StepFailed(HoldfastError):
    """The step could not do its work. If it is critical the job fails, at once (`permanent`) or by its retry policy."""

    code = "step_failed"

    def __init__(self, message: str, *, code: str | None = None, permanent: bool = True) -> None:
        super().__init__(message)
        self.permanent = permanent
        if code is not None:
            self.code = code


class StepUnavailable(HoldfastError):
    """What the step needs is not there: a program, a database, a setting."""

    code = "step_unavailable"


class Outcome(msgspec.Struct):
    """How a step ended."""

    status: Status
    message: str
    reasons: list[str] = []
    counts: dict[str, Any] = {}
    code: str | None = None
    permanent: bool = True
    """Of a failure: whether trying the job again is in vain."""
    unexpected: bool = False
    """Of a failure: neither the step nor its table has words for it."""
    seconds: float = 0.0
    remembered: bool = False
    """Not run: its result is from an earlier attempt of this job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One line of a step's table: what is seen -> what people read. All conditions given must hold."""

    message: str
    """`{reason}` is the tool's own line, other `{places}` are named groups of the pattern and the context's values."""
    pattern: str | None = None
    """A regular expression, searched in what the tool printed or the exception says; `^` and `$` match at each line."""
    exit_code: int | None = None
    on: Trouble | None = None
    code: str | None = None
    permanent: bool = True

    def __post_init__(self) -> None:
        if self.pattern is None and self.exit_code is None and self.on is None:
            raise ConfigError(f"the failure {self.message!r} would match everything: give a pattern, an exit code or `on`")
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigError(f"the pattern of the failure {self.message!r} is no regular expression: {error}") from error

    def match(self, trouble: Trouble | None, exit_code: int | None, texts: Sequence[str]) -> dict[str, str] | None:
        """What the pattern's named groups found, or None."""
        if self.on is not None and self.on != trouble:
            return None
        if self.exit_code is not None and self.exit_code != exit_code:
            return None
        if self.pattern is None:
            return {}
        for text in texts:
            found = re.search(self.pattern, text[:SEARCHED_CHARS_MAX], re.MULTILINE)
            if found is not None:
                return {name: value for name, value in found.groupdict().items() if value is not None}
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a pipeline. `run` takes the context and returns Done or Partial, or raises."""

    name: str
    run: Callable[[Any], Awaitable[Done | None]]
    critical: bool = True
    timeout: float | None = None
    memory_mb: float | None = None
    """For each tool that is run by `context.tool`."""
    starting: str | None = None
    title: str | None = None
    """As it stands in messages; the name, unless told."""
    failures: Sequence[Failure] = ()
    remember: bool | Callable[[Any], Any] = False
    """Whether a retry may skip it. A function returns what the result depends on: if that changes, the step runs again.
    Only for what is safe in a database by then; files in the workspace are gone."""
    recall: Callable[[Any], Awaitable[bool]] | None = None
    """For a step that is skipped: brings back to the context what later steps need. False: it is gone, so run the step."""

    @property
    def shown(self) -> str:
        return self.title or self.name.replace("_", " ").capitalize()

    def judge(self, error: Exception, values: Mapping[str, Any]) -> Outcome:
        """What an exception means: by its own words, by the table, or by the rules for all steps."""
        if isinstance(error, StepFailed):
            return Outcome("failed", str(error), code=error.code, permanent=error.permanent)
        if isinstance(error, StepUnavailable):
            return Outcome("unavailable", str(error), code=f"{self.name}_unavailable")
        seen = _seen(error)
        status: Status = "unavailable" if seen.trouble == "missing" else "failed"
        code = f"{self.name}_{_SUFFIX[seen.trouble]}"
        for failure in self.failures:
            groups = failure.match(seen.trouble, seen.exit_code, seen.texts)
            if groups is not None:
                message = render(failure.message, {"reason": seen.reason, **values, **groups})
                return Outcome(status, message, code=failure.code or code, permanent=failure.permanent)
        usual = {
            "timeout": f"{self.shown} timed out",
            "memory": f"{self.shown} ran out of memory",
            "missing": f"{self.shown} unavailable ({seen.reason})",
            None: f"{self.shown} failed: {seen.reason}",
        }
        unexpected = seen.trouble is None and not isinstance(error, ToolFailed)
        return Outcome(status, usual[seen.trouble], code=code, permanent=seen.trouble is not None, unexpected=unexpected)


@dataclass(frozen=True, slots=True)
class _Seen:
    """An exception as the table looks at it."""

    trouble: Trouble | None
    exit_code: int | None
    texts: Sequence[str]
    reason: str


class StepTimedOut(TimeoutError):
    """The step took longer than it may. Another TimeoutError is an ordinary failure: somebody else's deadline."""


def _seen(error: Exception) -> _Seen:
    if isinstance(error, ToolFailed):
        result = error.result
        return _Seen(_trouble_of(result), result.exit_code, [result.stderr, result.stdout], reason_line(result))
    if isinstance(error, ToolMissing):
        return _Seen("missing", None, [str(error)], f"{error.tool} not installed")
    text = str(error)
    first = next((line for line in text.splitlines() if line.strip()), "")
    reason = redact(f"{type(error).__name__}: {first}" if first else type(error).__name__)
    if isinstance(error, StepTimedOut):
        return _Seen("timeout", None, [text], reason)
    return _Seen("memory" if isinstance(error, MemoryError) else None, None, [text], reason)


def _trouble_of(result: ToolResult) -> Trouble | None:
    if result.out_of_memory:
        return "memory"
    return "timeout" if result.killed_by == "timeout" else None


def render(template: str, values: Mapping[str, Any]) -> str:
    """`{places}` filled in; one without a value stays as it is, because a message must never be what fails a job."""
    return _PLACE.sub(lambda found: str(values.get(found[1], found[0])), template)
