"""A small supervisor: starts processes by fork, passes signals on, and starts again those that crashed.

Forked before any thread, loop or connection exists: a child starts with everything imported and nothing open.
As process 1 of a container it also collects the orphans that land there.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from holdfast.thread_starts import start

START_ME_AGAIN = 75
"""Exit code of a process that wants a successor, because something in it hangs."""
ENDS_ALL = (2, 5)
"""Exit codes that another start would only repeat: a wrong setting, a database that is not there."""
STOPS = (signal.SIGTERM, signal.SIGINT)
FROZEN = "Timeout ("
"""The first word of a process that its watchdog ended. Its exit code is 1, as that of an unexpected error."""
BACKOFF_SECONDS = (0.5, 30.0)
HEALTHY_SECONDS = 60.0


class Child(NamedTuple):
    name: str
    main: Callable[[], int | None]


class Started(NamedTuple):
    child: Child
    at: float
    failures: int


class Supervisor:
    """`rescue` runs in a process of its own when a child has died: its jobs do not wait for the child that replaces it."""

    def __init__(self, children: Sequence[Child], say: Callable[[str], None], rescue: Callable[[], None] | None = None) -> None:
        self._children = children
        self._say = say
        self._rescue = Child("rescue", rescue) if rescue is not None else None
        self._rescuing = self._rescue_again = False
        self._running: dict[int, Started] = {}
        self._due: list[tuple[float, Child, int]] = []
        self._signals = self._passed_on = 0
        self._stopping = False
        self._exit_code = 0

    def run(self) -> int:
        """Until all have ended; the exit code of the first one that failed. In a child this never returns."""
        self._woken, wake = os.pipe()
        self._life_line, self._life_line_end = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in STOPS:
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that it writes to the wake-up pipe
        for child in self._children:
            self._start(child, 0)
        while self._running or self._due:
            self._pass_signals_on()
            self._wait()
            self._collect()
            self._start_what_is_due()
        return self._exit_code

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Only noted: what is being started or collected at this moment is in no list."""
        self._signals += 1

    def _pass_signals_on(self) -> None:
        while self._passed_on < self._signals:
            self._passed_on += 1
            self._stop_all()

    def _stop_all(self) -> None:
        self._stopping = True
        self._due.clear()
        for pid in self._running:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass

    def _start(self, child: Child, failures: int) -> bool:
        if self._signals or self._stopping:
            return False
        sys.stdout.flush()
        sys.stderr.flush()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # or our handler would swallow what is sent to the child
        try:
            pid = os.fork()
        except OSError as error:  # no process to be had now: the other children must not suffer for it
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._say(f"{child.name} cannot be started: {error}")
            if child is not self._rescue:
                self._due.append((time.monotonic() + BACKOFF_SECONDS[1], child, failures))
            return False
        if pid == 0:
            self._become(child, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._running[pid] = Started(child, time.monotonic(), failures)
        return True

    def _become(self, child: Child, mask: set[signal.Signals] | set[int]) -> NoReturn:
        """In the child: leaves through the callers of `run` like any other program, so that errors are reported there."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Ctrl+C reaches the whole group; it counts when the supervisor passes it on. Not SIG_IGN: programs would inherit that.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(self._life_line_end)
        start(threading.Thread(target=self._end_with_parent, name="holdfast life line", daemon=True))
        sys.exit(child.main() or 0)

    def _end_with_parent(self) -> None:
        """The other end of the pipe closes when the supervisor is gone, however it went."""
        os.read(self._life_line, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _wait(self) -> None:
        seconds = max(0.0, min(at for at, *_ in self._due) - time.monotonic()) if self._due else None
        if select.select([self._woken], [], [], seconds)[0]:
            os.read(self._woken, 4096)

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            started = self._running.pop(pid, None)
            if started is not None:
                self._ended(pid, started, os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, started: Started, code: int) -> None:
        child, at, failures = started
        if child is self._rescue:  # what it left undone is done by the next pass of a reaper
            self._rescuing = False
            if self._rescue_again:
                self._start_rescue()
            return
        if code == 0 or self._signals or self._stopping or code in ENDS_ALL:
            self._exit_code = self._exit_code or max(0, code)
            if code in ENDS_ALL:
                self._stop_all()
            return
        self._start_rescue()
        if code == START_ME_AGAIN:
            self._say(f"{child.name} (pid {pid}) hangs and is replaced")
            self._due.append((time.monotonic(), child, 0))
            return
        failures = 0 if time.monotonic() - at > HEALTHY_SECONDS else failures
        first, most = BACKOFF_SECONDS
        pause = min(most, first * 2.0**failures)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        how += f" (frozen, if {FROZEN!r} and stacks stand above)" if code == 1 else ""
        self._say(f"{child.name} (pid {pid}) ended by {how}; it is started again in {pause:g} s")
        self._due.append((time.monotonic() + pause, child, failures + 1))

    def _start_rescue(self) -> None:
        """One at a time: sixteen children that die together need no sixteen of them."""
        self._rescue_again = self._rescuing
        if self._rescue is not None and not self._rescuing:
            self._rescuing = self._start(self._rescue, 0)

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        due, self._due = [d for d in self._due if d[0] <= now], [d for d in self._due if d[0] > now]
        for _, child, failures in due:
            self._start(child, failures)


def run_to_end(main: Callable[[], int | None]) -> int:
    """In a process of its own, so that what it imports, opens and starts is not inherited by those forked later."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        sys.exit(main() or 0)
    _, status = os.waitpid(pid, 0)
    return abs(os.waitstatus_to_exitcode(status))
