"""Step 2 of 6: hand out. How many jobs a worker asks for, and how long it waits when there are none."""

from __future__ import annotations

AHEAD_SECONDS = 0.05
"""What is claimed ahead must be able to start within this time: others could have run it meanwhile."""
AHEAD_MAX = 1000
LISTENING_POLL_SECONDS = 30.0


class Pace:
    """Claims for the free slots and, while jobs take next to no time, a little ahead: a no-op job must not cost a round trip.

    `mean` follows the time that jobs take; at 1 second a job nothing is claimed ahead, at 20 microseconds some hundreds are.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean = AHEAD_SECONDS

    def took(self, seconds: float, jobs: int = 1) -> None:
        weight = min(0.5, 0.05 * jobs)
        self._mean += weight * (seconds / jobs - self._mean)

    def stalled(self) -> None:
        """No job has ended for long: claim nothing ahead until some have."""
        self._mean = max(self._mean, AHEAD_SECONDS)

    def room(self, busy: int, waiting: int) -> int:
        """How many jobs to claim, with `busy` slots running and `waiting` jobs claimed but not started."""
        ahead = min(AHEAD_MAX, int(self._concurrency * AHEAD_SECONDS / max(self._mean, 1e-6)) - self._concurrency)
        room = self._concurrency - busy - waiting + max(0, ahead)
        # Asking for a handful while hundreds would fit costs a round trip for little.
        return room if room >= max(1, (self._concurrency + max(0, ahead)) // 4) or not waiting else 0


class Poll:
    """When to look again by oneself. With notifications: seldom. Without: soon after work, then slower and slower."""

    def __init__(self, busy_seconds: float, idle_seconds: float) -> None:
        self._busy = busy_seconds
        self._idle = idle_seconds
        self._next = busy_seconds

    def found_work(self) -> None:
        self._next = self._busy

    def seconds(self, listening: bool) -> float:
        if listening:
            return max(self._idle, LISTENING_POLL_SECONDS)
        now, self._next = self._next, min(self._idle, self._next * 1.5)
        return now
