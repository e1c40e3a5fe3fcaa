"""How the queues are doing, as people read it."""

from __future__ import annotations

from rich.text import Text

from holdfast.cli.output import STATE_STYLES, console, duration, print_table
from holdfast.stats import Percentiles, QueueStats, Stats

COLUMNS = (
    "queue", "waiting", "oldest", "scheduled", "ordered", "running", "stuck", "slow", "orphaned", "done/min", "wait p50/p99",
    "run p50/p99",
)  # fmt: skip


def stats_text(stats: Stats) -> None:
    out = console()
    parts = [(f"{state} {_capped(n, stats.count_cap)}  ", STATE_STYLES.get(state, "")) for state, n in stats.counts.items()]
    out.print(Text.assemble(*parts))
    if stats.queues:
        print_table(out, COLUMNS, (_row(name, queue, stats.count_cap) for name, queue in stats.queues.items()))


def _row(name: str, queue: QueueStats, cap: int) -> list[str]:
    load = queue.load
    oldest = "" if load.oldest_wait_seconds is None else duration(load.oldest_wait_seconds)
    counts = [_some(n, cap) for n in (load.scheduled, load.ordered, load.running, load.stuck, load.slow, queue.orphaned)]
    pace = "" if queue.finished_per_minute_5m is None else f"{queue.finished_per_minute_5m:,.1f}"
    return [name, _capped(load.waiting, cap), oldest, *counts, pace, _percentiles(queue.wait), _percentiles(queue.run)]


def _some(n: int, cap: int) -> str:
    return _capped(n, cap) if n else ""


def _capped(n: int, cap: int) -> str:
    return f"{n:,}+" if n >= cap else f"{n:,}"


def _percentiles(found: Percentiles | None) -> str:
    return f"{duration(found.p50)} / {duration(found.p99)}" if found else ""
