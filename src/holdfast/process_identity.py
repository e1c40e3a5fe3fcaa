"""Which process a worker is, in words that another process of the same machine can check.

The identity names the host, its boot, the PID namespace, the PID and the start time. Systems without `/proc` have none: no
process is ever taken for dead there.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PROC = Path("/proc")


def own_identity() -> str | None:
    """`HOST BOOT NAMESPACE PID START` of this process; None where the system does not provide it."""
    place, start = _place(), _start_time(os.getpid())
    return f"{place} {os.getpid()} {start}" if place and start else None


def is_dead(identity: str | None) -> bool:
    """Whether this process has ended for certain. False where it cannot be known: another host, boot or PID namespace."""
    if identity is None:
        return False
    place, pid, start = identity.rsplit(" ", 2)
    if place != _place():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is there, and another user's
    found = _start_time(int(pid))
    # Not readable: /proc hides the processes of other users (hidepid), so that nothing is known.
    return found is not None and found != start


def _place() -> str | None:
    try:
        if os.readlink(_PROC / "self") != str(os.getpid()):
            return None  # /proc belongs to another PID namespace than ours: its numbers are not ours
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return None
    # The host as well: virtual machines that were cloned from one snapshot share everything else.
    return f"{socket.gethostname()} {boot} {namespace}"


def _start_time(pid: int) -> str | None:
    """In clock ticks since boot, or `ended` for a process that has ended and waits to be collected; None if unknown."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = line[line.rindex(")") + 2 :].split()  # the name before it may contain anything
        # A process whose first thread has ended alone looks like one that waits to be collected, but has other threads.
        if fields[0] in "ZX" and len(os.listdir(_PROC / str(pid) / "task")) <= 1:
            return "ended"
        return fields[19]
    except (OSError, ValueError, IndexError):
        return None
