"""The pure parts of a pipeline: the table of failures, messages, and what a pipeline refuses."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.pipeline import (
    Context,
    Done,
    Failure,
    Pipeline,
    Step,
    StepFailed,
    StepUnavailable,
    ToolFailed,
    ToolMissing,
    ToolResult,
    reason_line,
    says_out_of_memory,
)
from holdfast.pipeline.step import StepTimedOut, render


async def nothing(context: Context) -> Done:
    return Done()


def result(stderr: str = "", stdout: str = "", exit_code: int = 1, **fields: object) -> ToolResult:
    given = {"killed_by": None, "out_of_memory": False, "seconds": 1.0, "peak_mb": 1.0, **fields}
    return ToolResult(tool="scanner", exit_code=exit_code, stdout=stdout, stderr=stderr, **given)  # type: ignore[arg-type]


TABLE = [
    Failure(pattern=r"^fatal: Remote branch (?P<branch>.+) not found", message="Branch '{branch}' not found"),
    Failure(pattern="returned error: 429", message="{provider} rate limit reached", permanent=False, code="rate_limited"),
    Failure(pattern="not found", exit_code=128, message="Repository not found"),
    Failure(on="timeout", message="Took too long"),
]


@pytest.mark.parametrize(
    ("error", "message", "code", "permanent"),
    [
        (ToolFailed(result("x\nfatal: Remote branch a not found in b")), "Branch 'a' not found", "clone_failed", True),
        (ToolFailed(result("returned error: 429")), "GitHub rate limit reached", "rate_limited", False),
        (ToolFailed(result(stdout="x not found", exit_code=128)), "Repository not found", "clone_failed", True),
        (ToolFailed(result("x not found", exit_code=2)), "Clone failed: x not found", "clone_failed", False),
        (ToolFailed(result(killed_by="timeout", exit_code=-15)), "Took too long", "clone_timed_out", True),
        (StepTimedOut(), "Took too long", "clone_timed_out", True),
        (TimeoutError("read"), "Clone failed: TimeoutError: read", "clone_failed", False),
        (ConnectionError("returned error: 429"), "GitHub rate limit reached", "rate_limited", False),
        (ToolFailed(result(out_of_memory=True, exit_code=-9)), "Clone ran out of memory", "clone_out_of_memory", True),
        (MemoryError(), "Clone ran out of memory", "clone_out_of_memory", True),
        (ToolMissing("no git", "git"), "Clone unavailable (git not installed)", "clone_unavailable", True),
        (StepUnavailable("no database"), "no database", "clone_unavailable", True),
        (StepFailed("mended soon", code="later", permanent=False), "mended soon", "later", False),
    ],
)
def test_the_first_line_of_the_table_that_matches_decides(error: Exception, message: str, code: str, permanent: bool) -> None:
    """Then the rules for all steps; the step's own words come before both."""
    outcome = Step("clone", nothing, failures=TABLE).judge(error, {"provider": "GitHub"})
    assert (outcome.message, outcome.code, outcome.permanent) == (message, code, permanent)


@pytest.mark.parametrize(
    ("stderr", "stdout", "exit_code", "expected"),
    [
        ("\n  error: no rules\nsecond\n", "", 1, "error: no rules"),
        ('warned\nTraceback (most recent call last):\n  File "a", line 1\nKeyError: 1\n\nDuring …\n\n'
         'Traceback (most recent call last):\n  File "b"\n    x()\nLookupError: no rules\n', "", 1, "LookupError: no rules"),
        ("", "a\nwent wrong\n", 1, "went wrong"),
        ("", "", 3, "ended with exit code 3"),
        ("", "", -11, "ended by SIGSEGV"),
        ("clone of https://ana:hunter22@example.org/x failed", "", 1, "clone of https://[REDACTED]@example.org/x failed"),
    ],
)  # fmt: skip
def test_the_reason_is_the_line_that_names_the_cause(stderr: str, stdout: str, exit_code: int, expected: str) -> None:
    """The first line of standard error, the last of a traceback, or at least how it ended; never with a secret."""
    assert reason_line(result(stderr, stdout, exit_code)) == expected


@pytest.mark.parametrize(
    "words",
    ["FATAL ERROR: Reached heap limit", "java.lang.OutOfMemoryError: Java heap space", "fatal: Out of memory, malloc failed",
     "fatal error: runtime: out of memory", "terminate called … std::bad_alloc", "the engine was killed", "MemoryError"],
)  # fmt: skip
def test_tools_say_in_many_words_that_memory_was_short(words: str) -> None:
    """Each runtime has its own."""
    assert says_out_of_memory(f"line one\n{words}\n") and not says_out_of_memory("MemoryErrors are handled")


def test_a_message_never_fails_for_want_of_a_value() -> None:
    """A place without a value stays; nothing else in braces means anything."""
    assert render("{a} of {b} in {c.__class__} {", {"a": 1}) == "1 of {b} in {c.__class__} {"


@pytest.mark.parametrize("steps", [[], [Step("a", nothing), Step("a", nothing)]])
def test_a_pipeline_needs_steps_with_names_of_their_own(steps: list[Step]) -> None:
    """Outcomes and memories are kept by name."""
    with pytest.raises(ConfigError, match="name of its own"):
        Pipeline(steps)


def test_a_failure_that_would_match_everything_is_refused() -> None:
    """As is a pattern that is none."""
    with pytest.raises(ConfigError, match="match everything"):
        Failure(message="Something failed")
    with pytest.raises(ConfigError, match="no regular expression"):
        Failure(message="Something failed", pattern="(")
