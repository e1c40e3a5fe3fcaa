"""The tables for people and the JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import msgspec

from bench.peers.catalog import NEVER_MEASURED, PEERS, Peer
from bench.peers.plan import Plan
from bench.peers.records import Record, Records
from bench.processes import ROOT

RESULTS = ROOT / "bench" / "results"
DISTURBED = 1.3
"""A calibration this many times the quietest one: somebody else was using the machine."""


Pick = Callable[[Iterable[float]], float]


@dataclasses.dataclass(frozen=True)
class Column:
    metric: str
    title: str
    meaning: str
    shown: dict[str, Pick] = dataclasses.field(default_factory=lambda: {"per_second": median})
    """Which figures, put together by a slash, and which of several samples is shown."""


def speed_columns(plan: Plan) -> list[Column]:
    cut = f"cut after {plan.drain_seconds:g} s"
    backlog = f"the first {plan.backlog_part:,} of a backlog of {plan.backlog:,}, 1 worker process"
    late = f"ms from enqueue to the start of the job, {plan.latency_per_second} jobs/s, p50 / p99"
    return [
        Column("enqueue_one", "enqueue one", "jobs/s, one after the other"),
        Column("enqueue_many", "enqueue many", "jobs/s in calls of 1,000"),
        Column("drain_one", "drain 1", f"no-op jobs/s, 1 worker process, {cut}"),
        Column("drain_two", "drain 2", f"no-op jobs/s, 2 worker processes, {cut}"),
        Column("drain_backlog", "on backlog", f"no-op jobs/s, {backlog}, {cut}"),
        Column("latency", "latency", late, {"p50_ms": median, "p99_ms": median}),
    ]


def care_columns(plan: Plan) -> list[Column]:
    run = f"{plan.steady_seconds:.0f} s at {plan.steady_per_second} jobs/s"
    naps = f"{plan.naps:,} jobs of 20 ms, two workers"
    rescue = (
        f"how many completed within {plan.rescue_seconds:.0f} s / ran to their end twice / seconds until all had; the worst"
    )
    worst: dict[str, Pick] = {"completed": min, "twice": max, "seconds": max}
    return [
        Column("idle", "idle", "statements/s of one worker without work"),
        Column("dead_rows", "dead rows", f"in {run}: the most / at the end", {"most": max, "left": median}),
        Column("killed_worker", "worker killed", f"{naps}, one killed in the middle and started again: {rescue}", worst),
        Column("crashed_database", "database crashed", f"the same with an immediate restart of PostgreSQL: {rescue}", worst),
    ]


class Report:
    def __init__(self, records: Records, plan: Plan, machine: dict[str, Any], about: dict[str, dict[str, Any]]) -> None:
        self._records = records
        self._plan = plan
        times = sorted(record.at for record in records.all())
        self._machine = {**machine, "measured_at": f"{times[0]} to {times[-1]}"} if times else machine
        self._about = about
        self._quiet = min((record.calibration_ms for record in records.all() if record.calibration_ms), default=1.0)
        self._notes: list[str] = []
        measured = {record.peer for record in records.all() if record.figures}
        self.peers = [peer for peer in PEERS if peer.name in measured]

    def median_of(self, peer: Peer, metric: str, figure: str) -> float | None:
        return self._picked(peer, metric, figure, median)

    def _picked(self, peer: Peer, metric: str, figure: str, pick: Pick) -> float | None:
        values = [r.figures[figure] for r in self._records.of(peer.name, metric) if figure in r.figures]
        return pick(values) if values else None

    @property
    def samples(self) -> str:
        return "one sample each" if self._plan.samples == 1 else f"medians of {self._plan.samples} samples"

    def markdown(self) -> str:
        self._notes.clear()
        speed, care = self._table(speed_columns(self._plan)), self._table(care_columns(self._plan))
        notes = "\n".join(f"{number}. {note}" for number, note in enumerate(self._notes, 1))
        machine = ", ".join(f"{name} {value}" for name, value in self._machine.items())
        return (
            f"# Holdfast beside other queues\n\n{machine}\n\n"
            f"The queues in turn, {self.samples}. `!`: somebody else was using the machine.\n\n"
            f"{speed}\n\n{care}\n\n## Blank cells\n\n{notes}\n{self._left_out()}\n"
            f"## Versions and settings\n\n{self._settings()}\n"
        )

    def _table(self, columns: list[Column]) -> str:
        lines = [["", *(column.title for column in columns)]]
        lines += [[peer.title, *(self._cell(peer, column) for column in columns)] for peer in self.peers]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        table = "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)
        return "\n".join([table, "", *(f"- {column.title}: {column.meaning}" for column in columns)])

    def _cell(self, peer: Peer, column: Column) -> str:
        records = self._records.of(peer.name, column.metric)
        good = [record for record in records if record.figures]
        if not good:
            return self._note(records)
        values = [self._picked(peer, column.metric, figure, pick) for figure, pick in column.shown.items()]
        text = " / ".join("–" if value is None else number(value) for value in values)
        spread = ""
        if len(good) > 1 and len(column.shown) == 1:
            samples = [record.figures[next(iter(column.shown))] for record in good]
            spread = f" ({number(min(samples))}–{number(max(samples))})"
        disturbed = max(record.calibration_ms for record in good) > DISTURBED * self._quiet
        return f"{text}{spread}{' !' if disturbed else ''}"

    def _note(self, records: list[Record]) -> str:
        reason = (records[-1].reason if records else None) or "not measured in this run"
        if reason not in self._notes:
            self._notes.append(reason)
        return f"[{self._notes.index(reason) + 1}]"

    def _left_out(self) -> str:
        lines = [f"- {name} is left out: {why}." for name, why in NEVER_MEASURED.items()]
        lines += [f"- {name} is left out: {about['unusable']}." for name, about in self._about.items() if "unusable" in about]
        return "\n" + "\n".join(lines) + "\n"

    def _settings(self) -> str:
        lines = ["| | version | settings (default) | for the rescue |", "|---|---|---|---|"]
        for peer in self.peers:
            about = self._about.get(peer.name, {})
            if "settings" in about:
                lines.append(f"| {peer.title} | {about['version']} | {about['settings']} | {about['rescue']} |")
        return "\n".join(lines)

    def write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "peers.md").write_text(self.markdown(), encoding="utf-8")
        content = {
            "machine": self._machine,
            "plan": dataclasses.asdict(self._plan),
            "peers": self._about,
            "left_out": NEVER_MEASURED,
            "records": sorted(self._records.all(), key=lambda record: record.key),
        }
        (RESULTS / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
