"""Charts as shapes: numbers become points of an SVG here, so that they need neither JavaScript nor styles of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

WIDTH, HEIGHT = 600.0, 100.0


class Line(msgspec.Struct):
    """A line and the area below it, for a viewBox of WIDTH × HEIGHT."""

    points: str
    area: str
    top: float


class Bar(msgspec.Struct):
    x: float
    y: float
    width: float
    height: float
    kind: str


class Column(msgspec.Struct):
    """All bars of one step, with the words for it."""

    x: float
    width: float
    title: str
    bars: list[Bar]


def line(values: Sequence[float | None], top: float | None = None) -> Line:
    """`top`: what the full height means; else the highest value. Where there is no value the line goes straight on."""
    known = [(no, value) for no, value in enumerate(values) if value is not None]
    highest = max([value for _, value in known], default=0.0) if top is None else top
    if not known or highest <= 0:
        return Line(f"0,{HEIGHT:g} {WIDTH:g},{HEIGHT:g}", "", 0.0)
    step = WIDTH / max(1, len(values) - 1)
    room = HEIGHT - 4  # half a stroke at both ends
    points = " ".join(f"{no * step:.1f},{HEIGHT - 2 - room * min(1.0, value / highest):.1f}" for no, value in known)
    if len(known) == 1:
        x, y = points.split(",")
        points = f"{max(0.0, float(x) - step):.1f},{y} {points}"  # a line has two ends
    left, right = known[0][0] * step, known[-1][0] * step
    return Line(points, f"{left:.1f},{HEIGHT:g} {points} {right:.1f},{HEIGHT:g}", highest)


def stacks(steps: Sequence[Mapping[str, float]], kinds: Sequence[str], titles: Sequence[str]) -> dict[str, Any]:
    """One column for each step of time, its kinds on top of each other; `top` is the highest column."""
    sums = [sum(step.get(kind, 0.0) for kind in kinds) for step in steps]
    top = max([*sums, 0.0])
    width = WIDTH / max(1, len(steps))
    columns = []
    for no, (step, title) in enumerate(zip(steps, titles, strict=True)):
        y, bars = HEIGHT, []
        for kind in kinds:
            height = HEIGHT * step.get(kind, 0.0) / top if top else 0.0
            if height:
                y -= height
                bars.append(Bar(round(no * width + 1, 1), round(y, 1), round(width - 2, 1), round(height, 1), kind))
        said = ", ".join(f"{step[kind]:,.0f} {kind}" for kind in kinds if step.get(kind)) or "nothing"
        columns.append(Column(round(no * width, 1), round(width, 1), f"{title}: {said}", bars))
    return {"columns": columns, "top": top}
