"""The table for people and the JSON for programs."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.plan import Line, Plan

RESULTS = Path(__file__).parent / "results" / "latest.json"
DISTURBED = 1.3
"""A calibration this many times the quietest one: somebody else was using the machine."""


def table(lines: list[Line]) -> str:
    quiet = min((value for line in lines for value in line.calibrations), default=1.0)
    rows: list[tuple[str, ...]] = [("", "", "ours", "min - max", "floor", "ours/floor", "noise")]
    store = ""
    for line in lines:
        if line.store != store:
            store = line.store
            rows.append((store.upper(), "", "", "", "", "", ""))
        rows.append(_row(line, quiet))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(_aligned, row, widths, range(len(row)))).rstrip() for row in rows)


def _row(line: Line, quiet: float) -> tuple[str, ...]:
    spread = f"{_number(min(line.ours))} - {_number(max(line.ours))}" if len(line.ours) > 1 else ""
    floors = " | ".join(f"{name} {_number(median(values))}" for name, values in line.floors.items())
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    noise = f"{max(line.calibrations) / quiet:.1f}x" if line.calibrations else ""
    flagged = f"{noise} !" if line.calibrations and max(line.calibrations) / quiet > DISTURBED else noise
    return f"  {line.title}", line.unit, _number(line.middle), spread, floors, ratio, flagged


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column in (2, 5) else cell.ljust(width)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def write_json(lines: list[Line], plan: Plan, machine: dict[str, Any]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    found = []
    for line in lines:
        summary = {"title": line.title.strip(), "median": line.middle, "floor": line.floor, "ratio": line.ratio}
        found.append({**msgspec.structs.asdict(line), **summary})
    content = msgspec.json.encode({"machine": machine, "plan": plan, "lines": found})
    RESULTS.write_bytes(msgspec.json.format(content, indent=1) + b"\n")


def machine(fdatasync_ms: float, postgres: str | None) -> dict[str, Any]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgres": postgres,
        "fdatasync_ms": round(fdatasync_ms, 3),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
