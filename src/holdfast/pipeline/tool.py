"""Run an outside program as a guest that is not trusted: no shell, few rights to the machine, and a certain end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.context import current
from holdfast.errors import HoldfastError, InvalidOption
from holdfast.pipeline import memory
from holdfast.pipeline.output import Capture
from holdfast.pipeline.supervise import KilledBy, Limits, Supervisor
from holdfast.pipeline.threads import in_own_thread
from holdfast.redact import redact

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
STDERR_BYTES_MAX = 1024 * 1024
REASON_CHARS_MAX = 500
SECRET_CHARS_MIN = 8
"""Shorter values occur by chance; hiding them would hide ordinary text."""
_TRACEBACK = "Traceback (most recent call last):"


class ToolMissing(HoldfastError):
    """The program is not installed, or cannot be executed."""

    code = "tool_missing"

    def __init__(self, message: str, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool ended and what it printed, in plain text without the secrets it was given."""

    tool: str
    exit_code: int
    """As Python counts: the negative number of the signal that ended it."""
    killed_by: KilledBy | None
    """Which limit made us end it; None where it ended by itself."""
    out_of_memory: bool
    seconds: float
    peak_mb: float
    """Of the tool and all it started, as far as the watcher saw; 0 where it was too quick."""
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.killed_by is None

    def check(self) -> ToolResult:
        """Itself, or ToolFailed. Many scanners end with 0 whatever happened: judge those by what they wrote."""
        if not self.ok:
            raise ToolFailed(self)
        return self


class ToolFailed(HoldfastError):
    """A tool did not end well; inside a step its table of failures says what that means."""

    code = "tool_failed"

    def __init__(self, result: ToolResult) -> None:
        super().__init__(f"{result.tool}: {reason_line(result)}")
        self.result = result


def reason_line(result: ToolResult) -> str:
    """The one line of a tool's output that tells why it failed."""
    lines = [line.rstrip() for line in result.stderr.splitlines() if line.strip()]
    if not lines:
        lines = [line.rstrip() for line in result.stdout.splitlines() if line.strip()][-1:]
    if not lines:
        return _ending(result)
    last = max((place for place, line in enumerate(lines) if line.strip() == _TRACEBACK), default=None)
    if last is None:
        return redact(lines[0].strip())[:REASON_CHARS_MAX]
    cause = next((line for line in lines[last + 1 :] if not line.startswith(" ")), lines[-1])
    return redact(cause.strip())[:REASON_CHARS_MAX]


def _ending(result: ToolResult) -> str:
    if result.exit_code >= 0:
        return f"ended with exit code {result.exit_code}"
    try:
        return f"ended by {signal.Signals(-result.exit_code).name}"
    except ValueError:
        return f"ended by signal {-result.exit_code}"


async def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str],
    timeout: float | None,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    memory_mb: float | None = None,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    on_line: Callable[[str], None] | None = None,
) -> ToolResult:
    """Run a program to its end; when this run is cancelled, the program and everything it started is ended first.

    The program sees PATH, a home and temp folder of its own, `env` and `secrets`, and nothing else of this environment.
    `secrets` are variables too: their values are refused in `argv` and hidden in what the tool prints. More than
    `output_bytes_max` on standard output ends it; standard error keeps its beginning and end. `on_line` gets each line of
    both, in the tool's own thread.
    """
    stop = threading.Event()
    order = _Order(argv, cwd, env, secrets, Limits(timeout, memory_mb, output_bytes_max), on_line, _asked_to_stop(stop))
    return await in_own_thread(order.carry_out, when_cancelled=stop.set)


def run_tool_sync(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str],
    timeout: float | None,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    memory_mb: float | None = None,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    on_line: Callable[[str], None] | None = None,
) -> ToolResult:
    """`run_tool` for tasks that are plain functions."""
    limits = Limits(timeout, memory_mb, output_bytes_max)
    return _Order(argv, cwd, env, secrets, limits, on_line, _asked_to_stop(None)).carry_out()


def _asked_to_stop(stop: threading.Event | None) -> Callable[[], bool]:
    """By whoever awaits the tool, or by whoever cancels the job whose run this is."""
    try:
        run = current()
    except HoldfastError:
        return lambda: stop is not None and stop.is_set()
    return lambda: (stop is not None and stop.is_set()) or run.cancelled


class _Order:
    """One call of a tool, checked before anything is started."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        cwd: str | os.PathLike[str],
        env: Mapping[str, str] | None,
        secrets: Mapping[str, str] | None,
        limits: Limits,
        on_line: Callable[[str], None] | None,
        asked_to_stop: Callable[[], bool],
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise InvalidOption("run_tool takes the program and its arguments as a list; there is no shell to split a line")
        self._argv = [os.fspath(part) for part in argv]
        self._cwd = os.fspath(cwd)
        self._given = {**(env or {}), **(secrets or {})}
        self._hidden = sorted((v for v in (secrets or {}).values() if len(v) >= SECRET_CHARS_MIN), key=len, reverse=True)
        self._limits = limits
        self._on_line = on_line
        self._asked_to_stop = asked_to_stop
        if any(secret in part for secret in self._hidden for part in self._argv):
            raise InvalidOption("a secret stands on the command line, where every user of the machine can read it")

    def carry_out(self) -> ToolResult:
        if "HOME" in self._given:
            return self._run({})
        with tempfile.TemporaryDirectory(prefix="holdfast-tool-", ignore_cleanup_errors=True) as home:
            return self._run({"HOME": home, "TMPDIR": home})

    def _run(self, home: Mapping[str, str]) -> ToolResult:
        path = self._given.get("PATH", os.environ.get("PATH", os.defpath))
        env = {"PATH": _absolute_folders(path), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **home, **self._given}
        tool = Path(self._argv[0]).name
        out = Capture(self._limits.output_bytes_max, self._hidden, self._on_line)
        err = Capture(STDERR_BYTES_MAX, self._hidden, self._on_line)
        command = [_executable(self._argv[0], env["PATH"]), *self._argv[1:]]
        try:
            ended = Supervisor(self._limits, out, err, self._asked_to_stop).run(command, self._cwd, env)
        except OSError as error:
            if error.filename == command[0]:
                raise ToolMissing(f"{tool} cannot be started: {error.strerror}", tool) from error
            raise
        stderr = err.text()
        short_of_memory = ended.killed_by == "memory" or memory.ended_for_memory(
            ended.exit_code, stderr, killed_by_us=ended.killed_by is not None, oom_kills=ended.oom_kills
        )
        return ToolResult(
            tool=tool,
            exit_code=ended.exit_code,
            killed_by=ended.killed_by,
            out_of_memory=short_of_memory,
            seconds=ended.seconds,
            peak_mb=ended.peak_mb,
            stdout=out.text(),
            stderr=stderr,
        )


def _absolute_folders(path: str) -> str:
    """A relative folder would mean the tool's working folder, where a stranger's files may lie."""
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if os.path.isabs(folder))


def _executable(name: str, path: str) -> str:
    found = shutil.which(os.path.abspath(name)) if os.sep in name else shutil.which(name, path=path)
    if found is None:
        raise ToolMissing(f"{Path(name).name} is not installed (not found on PATH)", Path(name).name)
    return found
