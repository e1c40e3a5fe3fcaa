"""Outside programs that misbehave in every way there is: each ends in time, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import InvalidOption
from holdfast.pipeline import ToolMissing, ToolResult, reason_line, run_tool, run_tool_sync, supervise
from tests.support.processes import runs
from tests.support.waiting import until

MB = 1024 * 1024
SECRET = "correct-horse-battery"
FOREVER = "import time; time.sleep(600)"
LATE_SECONDS = 1000.0


async def python(code: str, cwd: Path, **options: Any) -> ToolResult:
    return await run_tool([sys.executable, "-c", code], **{"cwd": cwd, "timeout": 90, **options})


def pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of five seconds."""
    monkeypatch.setattr(supervise, "TERM_SECONDS", 0.3)


@pytest.fixture
def late_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """A thousand seconds pass as soon as this is true: a tool is late when it is ready for that, however slow the machine."""

    def pass_then(is_ready: Callable[[], object]) -> None:
        clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + (LATE_SECONDS if is_ready() else 0))
        monkeypatch.setattr(supervise, "time", clock)

    return pass_then


async def test_a_tool_that_ends_well_tells_what_it_printed(tmp_path: Path) -> None:
    """Exit code, both outputs without colours, and its time."""
    result = await python("import sys; print('\\033[31mfound 3\\033[0m'); print('careful', file=sys.stderr)", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr, result.killed_by) == (0, "found 3\n", "careful\n", None)
    assert result.ok and not result.out_of_memory and 0 < result.seconds < 30


@pytest.mark.usefixtures("short_grace")
async def test_a_tool_that_ignores_sigterm_is_killed(tmp_path: Path, late_once: Callable[..., None]) -> None:
    """It gets its time to clean up, and not more."""
    code = f"import os, signal; signal.signal(15, signal.SIG_IGN); open('pid', 'w').write(str(os.getpid())); {FOREVER}"
    late_once(lambda: pids(tmp_path / "pid"))
    result = await python(code, tmp_path, timeout=LATE_SECONDS)
    assert (result.exit_code, result.killed_by, result.out_of_memory) == (-9, "timeout", False)
    assert result.seconds >= LATE_SECONDS + supervise.TERM_SECONDS
    assert not runs(pids(tmp_path / "pid")[0])


async def test_a_tool_that_sleeps_past_its_time_may_clean_up(
    tmp_path: Path, late_once: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes first, and what it prints then is still read."""
    monkeypatch.setattr(supervise, "TERM_SECONDS", 60.0)
    ready = "print('hi', flush=True); open('ready', 'w').close()"
    code = f"import signal, sys; signal.signal(15, lambda *_: (print('bye'), sys.exit(3))); {ready}; {FOREVER}"
    late_once((tmp_path / "ready").exists)
    result = await python(code, tmp_path, timeout=LATE_SECONDS)
    assert (result.killed_by, result.exit_code, result.stdout) == ("timeout", 3, "hi\nbye\n")
    assert result.seconds < LATE_SECONDS + supervise.TERM_SECONDS


GRANDCHILDREN = """
import os, subprocess, sys
write = "import os; open('pids', 'a').write(str(os.getpid()) + chr(10)); import time; time.sleep(600)"
for own_session in (False, True):
    subprocess.Popen([sys.executable, "-c", write], start_new_session=own_session)
daemon = "import os, sys; os.fork() and sys.exit(); os.setsid(); os.fork() and sys.exit(); " + write
subprocess.run([sys.executable, "-c", daemon], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
import time
while not os.path.exists("pids") or open("pids").read().count(chr(10)) < 3:
    time.sleep(0.01)
print("done", flush=True)
"""


async def test_what_a_tool_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    """Grandchildren that hold the pipes, that left the group, and daemons: none survives, and the tool's end is its own."""
    result = await python(GRANDCHILDREN, tmp_path)
    assert (result.exit_code, result.killed_by, result.stdout) == (0, None, "done\n")
    left = pids(tmp_path / "pids")
    assert len(left) == 3 and [pid for pid in left if runs(pid)] == []


@pytest.mark.usefixtures("short_grace")
async def test_a_tool_past_its_time_takes_its_grandchildren_along(tmp_path: Path, late_once: Callable[..., None]) -> None:
    """All of them are ended, in the group and outside it."""
    late_once((tmp_path / "ready").exists)
    code = f"{GRANDCHILDREN}\nopen('ready', 'w').close(); time.sleep(600)"
    result = await python(code, tmp_path, timeout=LATE_SECONDS)
    assert (result.killed_by, result.stdout) == ("timeout", "done\n")
    left = pids(tmp_path / "pids")
    assert len(left) == 3 and [pid for pid in left if runs(pid)] == []


FLOOD = """
import os, threading
def pour(pipe):
    left = memoryview(b"first line\\n" + b"x" * (100 * 1024 * 1024) + b"\\nlast line\\n")
    while left:
        left = left[os.write(pipe, left[:1048576]):]
threads = [threading.Thread(target=pour, args=(pipe,)) for pipe in (1, 2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


async def test_a_hundred_megabytes_on_both_pipes_neither_block_nor_stay(tmp_path: Path) -> None:
    """Within its limit standard output is complete; of standard error the beginning and the end are kept."""
    result = await python(FLOOD, tmp_path, output_bytes_max=120 * MB)
    assert (result.exit_code, result.killed_by, len(result.stdout)) == (0, None, 100 * MB + len("first line\n\nlast line\n"))
    assert result.stderr.startswith("first line\n") and result.stderr.endswith("\nlast line\n")
    assert len(result.stderr) < 1.1 * MB and "bytes left out" in result.stderr


async def test_more_standard_output_than_allowed_ends_the_tool(tmp_path: Path) -> None:
    """What would be cut cannot be used, so the tool need not go on."""
    result = await python(f"{FLOOD}\n{FOREVER}", tmp_path, output_bytes_max=MB)
    assert result.killed_by == "output" and not result.ok
    assert MB <= len(result.stdout) < 1.1 * MB


async def test_cut_output_is_told_also_when_the_tool_was_quicker_than_its_end(tmp_path: Path) -> None:
    """Nobody takes half a report for a whole one."""
    result = await python("print('x' * 5000)", tmp_path, output_bytes_max=1000)
    assert result.killed_by == "output" and not result.ok


async def test_a_tool_beyond_its_memory_is_killed(tmp_path: Path) -> None:
    """At once, and it is known why; what it took is told."""
    result = await python(f"hoard = bytearray(300 * {MB}); {FOREVER}", tmp_path, memory_mb=150)
    assert (result.killed_by or "kernel") in ("memory", "kernel") and result.out_of_memory
    assert result.peak_mb > 140


async def test_the_memory_of_all_processes_of_a_tool_counts_together(tmp_path: Path) -> None:
    """Two children of half the limit each, beside a small parent, are too much."""
    child = f"hoard = bytearray(90 * {MB}); {FOREVER}"
    code = f"import subprocess, sys; [subprocess.Popen([sys.executable, '-c', {child!r}]) for _ in '12']; {FOREVER}"
    result = await python(code, tmp_path, memory_mb=150)
    assert result.out_of_memory and result.peak_mb > 140


async def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    """Four processes that show the same 60 MB are not 240; neither when they end, one after the other."""
    code = f"import os, time; hoard = bytearray(60 * {MB}); [os.fork() for _ in '12']; time.sleep(1.5); os._exit(0)"
    result = await python(code, tmp_path, memory_mb=200)
    assert (result.killed_by, result.exit_code, result.out_of_memory) == (None, 0, False)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.kill(os.getpid(), 9)", True),
        ("import sys; sys.exit(137)", True),
        ("import os, sys; sys.stderr.write('FATAL ERROR: Reached heap limit'); sys.stderr.flush(); os.abort()", True),
        ("import sys; sys.stderr.write('FATAL ERROR: Reached heap limit'); sys.exit(134)", True),
        ("raise MemoryError", True),
        ("import os; os.abort()", False),
        ("import sys; print('out of memory'); sys.exit(1)", False),
        ("import sys; sys.stderr.write('never out of memory')", False),
    ],
)
async def test_every_form_of_too_little_memory_is_understood(tmp_path: Path, code: str, expected: bool) -> None:
    """A signal, an exit code with words, or words alone; but not what stands in results, nor in a good end."""
    assert (await python(code, tmp_path)).out_of_memory is expected


async def test_a_missing_program_has_its_own_error(tmp_path: Path) -> None:
    """So that a step can say that it was skipped."""
    with pytest.raises(ToolMissing, match="no-such-scanner is not installed") as missing:
        await run_tool(["no-such-scanner", "--all"], cwd=tmp_path, timeout=5)
    assert missing.value.tool == "no-such-scanner"


async def test_a_file_that_is_no_program_is_a_missing_program(tmp_path: Path) -> None:
    """Executable by its rights, but not by its content."""
    (tmp_path / "scanner").write_text("?")
    (tmp_path / "scanner").chmod(0o755)
    with pytest.raises(ToolMissing, match="cannot be started"):
        await run_tool([tmp_path / "scanner"], cwd=tmp_path, timeout=5)


async def test_a_program_in_the_working_folder_is_never_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder may hold a stranger's files, whatever PATH says."""
    (tmp_path / "scanner").write_text("#!/bin/sh\necho owned\n")
    (tmp_path / "scanner").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    with pytest.raises(ToolMissing):
        await run_tool(["scanner"], cwd=tmp_path, timeout=5)
    shown = await python("import os; print(os.environ['PATH'])", tmp_path)
    assert all(folder.startswith("/") for folder in shown.stdout.strip().split(":"))


@pytest.mark.usefixtures("short_grace")
async def test_a_cancelled_caller_leaves_no_process_behind(tmp_path: Path) -> None:
    """When the CancelledError arrives, the tool and its grandchildren are gone."""
    life = asyncio.create_task(python(f"{GRANDCHILDREN}\ntime.sleep(600)", tmp_path, timeout=None))
    await until(lambda: len(pids(tmp_path / "pids")) == 3)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    assert [pid for pid in pids(tmp_path / "pids") if runs(pid)] == []


async def test_secrets_travel_by_environment_and_are_hidden_in_what_is_printed(tmp_path: Path) -> None:
    """The tool can use them; the process list and the result do not show them."""
    code = (
        "import os, sys; print('TOKEN' in os.environ, len(os.environ['TOKEN'])); print('got', os.environ['TOKEN']);"
        "print(open('/proc/self/cmdline').read().count(os.environ['TOKEN']));"
        "sys.exit('refused: ' + os.environ['TOKEN'])"
    )
    heard: list[str] = []
    result = await python(code, tmp_path, secrets={"TOKEN": SECRET}, on_line=heard.append)
    assert result.stdout == f"True {len(SECRET)}\ngot [REDACTED]\n0\n"
    assert reason_line(result) == "refused: [REDACTED]"
    assert SECRET not in repr(result) + repr(heard) and "got [REDACTED]" in heard


async def test_a_secret_that_is_cut_in_two_is_not_shown_by_halves(tmp_path: Path) -> None:
    """Where the middle of the output is left out, what stands at the cut is left out too."""
    code = "import os, sys; sys.stderr.write('x' * 10 + os.environ['TOKEN'] * 200_000 + 'x' * 10)"
    result = await python(code, tmp_path, secrets={"TOKEN": SECRET})
    shown = result.stderr.replace("[REDACTED]", "")
    assert "bytes left out" in shown
    assert not any(part in shown for part in ("corr", "hors", "tter"))


async def test_a_secret_on_the_command_line_is_refused(tmp_path: Path) -> None:
    """Nothing is started."""
    with pytest.raises(InvalidOption, match="command line"):
        url = f"https://x:{SECRET}@example.org/repo"
        await run_tool(["git", "clone", url], cwd=tmp_path, timeout=5, secrets={"TOKEN": SECRET})


async def test_a_tool_sees_nothing_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only PATH, the language, a home of its own that is gone afterwards, and what it is given."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://ana:secret@db/jobs")
    result = await python("import os; print(*os.environ); print(os.environ['HOME'])", tmp_path, env={"COLOR": "no"})
    names, home = result.stdout.splitlines()
    assert set(names.split()) == {"PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "COLOR", "HOLDFAST_TOOL"}
    assert home != os.environ.get("HOME") and not Path(home).exists()


async def test_a_tool_that_closed_its_pipes_is_waited_for(tmp_path: Path) -> None:
    """Silence is not the end."""
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)"
    assert (await python(code, tmp_path)).exit_code == 4


async def test_lines_come_while_the_tool_runs(tmp_path: Path) -> None:
    """Progress can be shown; a last line without an end comes too."""
    heard: list[str] = []
    wait = "while not os.path.exists('go'): time.sleep(0.01)"
    code = f"import os, time; print('one\\rtwo', flush=True)\n{wait}\nprint('three', end='')"
    life = asyncio.create_task(python(code, tmp_path, on_line=heard.append))
    await until(lambda: heard == ["one", "two"])
    (tmp_path / "go").touch()
    await life
    assert heard == ["one", "two", "three"]


@pytest.mark.usefixtures("short_grace")
async def test_a_listener_that_raises_ends_the_tool(tmp_path: Path) -> None:
    """The error comes to the caller, and no process stays."""

    def listen(line: str) -> None:
        raise LookupError(line)

    code = f"import os; open('pid', 'w').write(str(os.getpid())); print('line', flush=True); {FOREVER}"
    with pytest.raises(LookupError):
        await python(code, tmp_path, on_line=listen)
    assert not runs(pids(tmp_path / "pid")[0])


def test_sync_code_runs_tools_the_same_way(tmp_path: Path, late_once: Callable[..., None]) -> None:
    """One implementation, with or without an event loop."""
    code = f"print('hi', flush=True); open('ready', 'w').close(); {FOREVER}"
    late_once((tmp_path / "ready").exists)
    result = run_tool_sync([sys.executable, "-c", code], cwd=tmp_path, timeout=LATE_SECONDS)
    assert (result.killed_by, result.exit_code, result.stdout) == ("timeout", -15, "hi\n")


async def test_no_shell_reads_the_arguments(tmp_path: Path) -> None:
    """They arrive as they are."""
    hostile = "$(touch owned); `touch owned` | x > owned"
    result = await run_tool([sys.executable, "-c", "import sys; print(sys.argv[1])", hostile], cwd=tmp_path, timeout=90)
    assert result.stdout == hostile + "\n" and not (tmp_path / "owned").exists()
    with pytest.raises(InvalidOption, match="list"):
        await run_tool("echo hi", cwd=tmp_path, timeout=10)
