"""Forked children of the test itself."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable

from tests.support.waiting import until_sync

LIFE_SECONDS = 40


def forked(work: Callable[[], object]) -> int:
    """The process id of a child that does this and ends: with 0, with 1 if it raises, by SIGALRM if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer: this process has threads
        pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIFE_SECONDS)
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Once it has ended; negative for a signal."""

    def ended() -> tuple[int, int] | None:
        found, status = os.waitpid(pid, os.WNOHANG)
        return (found, status) if found else None

    _, status = until_sync(ended, LIFE_SECONDS + 20)
    return os.waitstatus_to_exitcode(status)
