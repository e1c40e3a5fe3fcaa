"""Every sample as one line of JSON, written as soon as it is there, so that a run can be broken off and resumed."""

from __future__ import annotations

import msgspec

from bench.peers.environments import CACHE

FILE = CACHE / "peers.jsonl"


class Record(msgspec.Struct, kw_only=True):
    peer: str
    metric: str
    sample: int
    quick: bool
    figures: dict[str, float] = {}
    reason: str | None = None
    """Why there are no figures."""
    error: bool = False
    """It went wrong, in contrast to: it cannot be measured. A resumed run tries again."""
    calibration_ms: float = 0.0
    at: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.peer, self.metric, self.sample


class Records:
    def __init__(self, *, quick: bool, resume: bool) -> None:
        if not resume and FILE.exists():
            FILE.replace(FILE.with_suffix(".previous.jsonl"))
        self._found: dict[tuple[str, str, int], Record] = {}
        if FILE.exists():
            for line in FILE.read_bytes().splitlines():
                record = msgspec.json.decode(line, type=Record)
                if record.quick == quick:
                    self._found[record.key] = record

    def has(self, peer: str, metric: str, sample: int) -> bool:
        found = self._found.get((peer, metric, sample))
        return found is not None and not found.error

    def add(self, record: Record) -> None:
        self._found[record.key] = record
        with FILE.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    def all(self) -> list[Record]:
        return list(self._found.values())

    def of(self, peer: str, metric: str) -> list[Record]:
        return [record for record in self._found.values() if (record.peer, record.metric) == (peer, metric)]
