"""Where the next claim of a queue begins.

At the front, as a rule: then the most urgent job is always the next. But while a transaction stays open anywhere in the
database, nothing that was claimed since then can leave the index, and every claim from the front walks over all of it. A claim
that was slow for that reason lets the following ones begin behind the last job it found; from the front it is looked again
after a few times what that look took, and at least once a second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

LOOK_SECONDS = 0.002
LOOK_SECONDS_PER_JOB = 0.00002
"""A look from the front that takes longer than these together is slow."""
REST = 4.0
REST_SECONDS_MAX = 1.0


class _Place(NamedTuple):
    job_id: str
    until: float


class Beginnings:
    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def of(self, queues: Sequence[str]) -> list[str | None]:
        now = time.monotonic()
        return [place.job_id if (place := self._places.get(queue)) and now < place.until else None for queue in queues]

    def learn(self, queue: str, began: str | None, last: str | None, seconds: float, jobs: int) -> None:
        """A claim that began behind `began` took `seconds` to find `jobs`; `last` is the last of them if it was filled."""
        if last is None:
            self._places.pop(queue, None)
        elif began is not None and queue in self._places:
            self._places[queue] = self._places[queue]._replace(job_id=last)
        elif seconds > LOOK_SECONDS + jobs * LOOK_SECONDS_PER_JOB:
            self._places[queue] = _Place(last, time.monotonic() + min(REST_SECONDS_MAX, REST * seconds))
        else:
            self._places.pop(queue, None)
