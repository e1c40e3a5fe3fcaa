"""Step 2 of 6: hand out. How many jobs a worker asks for, and how long it waits when there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast import reading
from holdfast.errors import InvalidOption
from holdfast.store.protocol import HOPS, Claim

AHEAD_SECONDS = 0.05
"""What is claimed ahead must be able to start within this time: others could have run it meanwhile."""
AHEAD_MAX = 1000
LISTENING_POLL_SECONDS = 30.0
HOPS_MAX = 512
HINTS_MAX = 200
WEIGHT_MAX = 1000
BUSY_SECONDS = 0.02
"""Somebody else was serving a tenant that may have room: ask again this soon."""


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


def check_queues(queues: Sequence[str] | Mapping[str, int] | None) -> list[str] | dict[str, int]:
    """As given, or InvalidOption."""
    if isinstance(queues, str):
        raise InvalidOption(f"queues must be a list such as [{queues!r}]")
    for queue in queues or ():
        reading.text("a queue", queue)
    if not isinstance(queues, Mapping):
        return list(queues or ())
    for queue, weight in queues.items():
        if not isinstance(weight, int) or not 1 <= weight <= WEIGHT_MAX:
            raise InvalidOption(f"the weight of queue {queue} must be a whole number from 1 to {WEIGHT_MAX}, not {weight!r}")
    return dict(queues)


class QueueOrder:
    """Which queue a claim looks at first: always the first one given or, with weights, each in turn as often as its weight
    says. The others come behind it, so that a worker never idles while one of its queues has work."""

    def __init__(self, queues: Sequence[str] | Mapping[str, int]) -> None:
        self.names = list(dict.fromkeys(queues))
        self._weights = dict(queues) if isinstance(queues, Mapping) else None
        self._credit = dict.fromkeys(self.names, 0)

    def next(self) -> list[str]:
        if self._weights is None:
            return self.names
        for name, weight in self._weights.items():
            self._credit[name] += weight
        first_to_last = sorted(self.names, key=lambda name: -self._credit[name])  # stable: of equals the first one given
        self._credit[first_to_last[0]] -= sum(self._weights.values())
        return first_to_last


class Rotation:
    """Where a worker is on its way round the tenants, and whether it is worth going.

    Once it has gone all the way round and taken all it could, nothing can be had until something changes; and what changes
    mostly names its tenant: a job arrived, or one of ours ended and made room. Then only those tenants are looked at
    (`hints`), so that thousands of tenants at their limit cost nothing. Whatever names nobody starts a new way round.
    What changes while a question is on its way may have come too late for the answer, so it is kept for the next one.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        self.cursors: dict[str, str | None] = dict.fromkeys(queues)
        self._hints: dict[str, None] = {}
        self._full_queues: set[str] = set()
        self._asked = False
        self._set_out()

    def _set_out(self) -> None:
        """A new way round begins; it will see all that has changed until now."""
        self._hops = HOPS
        self._dry = False
        self._news = False
        self.held = False
        """Whether there is work that only a limit or a pause holds back. A place that frees elsewhere is not always told."""
        self._hints.clear()
        # From somewhere in the middle all have been seen once the end of the names was passed a second time.
        self._ends_to_pass = {queue: 1 if cursor is None else 2 for queue, cursor in self.cursors.items()}

    def next_question(self) -> tuple[int, list[str]]:
        """How many tenants to look at on the way round, and which besides."""
        self._asked = True
        if not self._dry:
            return self._hops, []
        hints = list(self._hints)[:HINTS_MAX]
        for tenant in hints:
            del self._hints[tenant]
        return 0, hints

    def answered(self, claim: Claim, asked_for: int, hops: int) -> float | None:
        """Seconds until it is worth asking again by oneself, None: not before something changes."""
        self._asked = False
        for turn in claim.turns:
            self.cursors[turn.queue] = turn.cursor
        self._full_queues = {turn.queue for turn in claim.turns if turn.full}
        self.held = self.held or any(turn.held or turn.full for turn in claim.turns)
        if len(claim.jobs) == asked_for:
            self._set_out()
            return 0.0
        if claim.next_due_seconds == 0 or any(turn.busy for turn in claim.turns):
            self._set_out()
            return BUSY_SECONDS
        if hops and not self._is_all_round(claim):
            self._hops = HOPS if claim.jobs else min(HOPS_MAX, hops * 2)
            return 0.0
        if self._news:
            self._set_out()
            return 0.0
        self._dry = True
        return 0.0 if self._hints else None

    def _is_all_round(self, claim: Claim) -> bool:
        for turn in claim.turns:
            self._ends_to_pass[turn.queue] = 0 if turn.around else self._ends_to_pass[turn.queue] - turn.wrapped
        return all(left <= 0 for left in self._ends_to_pass.values())

    def unanswered(self) -> None:
        """The question was lost, and the hints with it."""
        self._asked = False
        self._set_out()

    def freed(self, queue: str, tenant: str | None) -> bool:
        """A job has ended: whether that makes it worth asking. Only limits are lifted by it."""
        if queue in self._full_queues:
            self.look_everywhere()  # the room belongs to whoever is next in the queue, not to the tenant it came from
        elif tenant is not None:
            self.look_at(tenant)
        else:
            return False
        return True

    def look_everywhere(self) -> None:
        if self._asked:
            self._news = True
        else:
            self._set_out()

    def look_at(self, tenant: str) -> None:
        self._hints[tenant] = None
        if len(self._hints) > HINTS_MAX:
            self._hints.clear()
            self.look_everywhere()
