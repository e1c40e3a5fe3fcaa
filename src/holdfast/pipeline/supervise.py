"""One tool from start to end: watched for time, memory and output, and ended with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.pipeline import memory
from holdfast.pipeline.output import Capture, Pipes

KilledBy = Literal["timeout", "memory", "cancel", "output"]

TERM_SECONDS = 5.0
"""What a tool gets to clean up between SIGTERM and SIGKILL."""
KILL_SECONDS = 5.0
"""How long the kernel may take to end what was killed."""
LAST_WORDS_SECONDS = 1.0
TICK_SECONDS = 0.05
GLANCE_SECONDS = 0.1
LOOK_SECONDS = 0.5
OOM_SCORE = "500"


@dataclass(frozen=True, slots=True)
class Limits:
    timeout: float | None
    memory_mb: float | None
    output_bytes_max: int


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    killed_by: KilledBy | None
    oom_kills: int
    seconds: float
    peak_mb: float


class Supervisor:
    """Starts one child in a session of its own and stays with it until nothing of it is left."""

    def __init__(self, limits: Limits, out: Capture, err: Capture, asked_to_stop: Callable[[], bool]) -> None:
        self._limits = limits
        self._out = out
        self._err = err
        self._asked_to_stop = asked_to_stop
        self._pipes = Pipes()
        self._killed_by: KilledBy | None = None
        self._peak_bytes = 0
        self._next_glance = self._next_look = 0.0

    def run(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Ended:
        name = f"holdfast-tool-{uuid.uuid4().hex}"
        mark = f"HOLDFAST_TOOL={name}"
        self._started = time.monotonic()
        self._child = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, "HOLDFAST_TOOL": name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._family = memory.Family(self._child.pid, mark.encode())
        limit = self._limits.memory_mb
        self._cgroup = None if limit is None else memory.Cgroup.create(name, limit)
        try:
            self._settle_in()
            self._watch()
        except BaseException:
            self._out.mute()
            self._err.mute()
            raise
        finally:
            self._end()
        return self._ended()

    def _settle_in(self) -> None:
        assert self._child.stdout is not None and self._child.stderr is not None
        self._pipes.add(self._child.stdout, self._out)
        self._pipes.add(self._child.stderr, self._err)
        if self._cgroup is not None:
            self._cgroup.add(self._child.pid)
        with contextlib.suppress(OSError):  # when memory is short, the kernel takes the tool and not the worker
            Path(f"/proc/{self._child.pid}/oom_score_adj").write_text(OOM_SCORE)

    def _watch(self) -> None:
        pause = 0.001
        while not self._exited():
            self._killed_by = self._reason_to_kill()
            if self._killed_by is not None:
                return
            if self._pipes.open:
                self._pipes.read(TICK_SECONDS)
            else:
                time.sleep(pause)
                pause = min(2 * pause, TICK_SECONDS)

    def _reason_to_kill(self) -> KilledBy | None:
        now = time.monotonic()
        if self._asked_to_stop():
            return "cancel"
        if self._limits.timeout is not None and now - self._started >= self._limits.timeout:
            return "timeout"
        if self._out.overflowed:
            return "output"
        return "memory" if self._over_memory(now) else None

    def _over_memory(self, now: float) -> bool:
        if now < self._next_glance:
            return False
        self._next_glance = now + GLANCE_SECONDS
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            members = self._family.look()
        else:
            members = self._family.glance()
        used = memory.bytes_used(members)
        limit = (self._limits.memory_mb or float("inf")) * memory.MB
        if used > limit:
            used = memory.bytes_used_exactly(members)
        self._peak_bytes = max(self._peak_bytes, used)
        return used > limit

    def _exited(self) -> bool:
        """Without reaping it: its number stays taken until the group has been killed, so that no stranger is hit."""
        if self._child.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    # -- the end

    def _end(self) -> None:
        try:
            # What takes too much memory gets no time to take more; what outlives its tool has no reason to be asked.
            if self._killed_by != "memory" and not self._exited():
                self._signal(signal.SIGTERM, self._family.look())
                self._gone_within(TERM_SECONDS)
            self._kill()
            self._hear_last_words()
        finally:
            self._pipes.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(0.1)

    def _kill(self) -> None:
        give_up_at = time.monotonic() + KILL_SECONDS
        while (left := self._family.search()) or not self._exited():
            if self._cgroup is not None:
                self._cgroup.kill()
            self._signal(signal.SIGKILL, left)
            if self._gone_within(2 * TICK_SECONDS) or time.monotonic() > give_up_at:
                break

    def _gone_within(self, seconds: float) -> bool:
        give_up_at = time.monotonic() + seconds
        while not self._exited() or self._family.look():
            if time.monotonic() > give_up_at:
                return False
            if self._pipes.open:
                self._pipes.read(TICK_SECONDS)
            else:
                time.sleep(TICK_SECONDS)
        return True

    def _hear_last_words(self) -> None:
        give_up_at = time.monotonic() + LAST_WORDS_SECONDS
        while self._pipes.open and time.monotonic() < give_up_at:
            self._pipes.read(TICK_SECONDS)

    def _signal(self, number: signal.Signals, members: list[memory.Process]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)
        for process in members:
            if process.group != self._child.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, number)

    def _ended(self) -> Ended:
        seconds = time.monotonic() - self._started
        oom_kills, peak = 0, self._peak_bytes
        if self._cgroup is not None:
            oom_kills, peak = self._cgroup.oom_kills, max(peak, self._cgroup.peak_bytes)
            self._cgroup.remove()
        if self._killed_by is None and self._out.overflowed:
            self._killed_by = "output"  # it was quicker than we, and what it printed is cut all the same
        exit_code = self._child.returncode if self._child.returncode is not None else -int(signal.SIGKILL)
        return Ended(exit_code, self._killed_by, oom_kills, seconds, peak / memory.MB)
