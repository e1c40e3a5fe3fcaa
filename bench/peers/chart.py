"""The picture for the README: bars drawn by hand, readable on light and dark pages."""

from __future__ import annotations

from html import escape

from bench.peers.catalog import Peer
from bench.peers.report import RESULTS, Report, number

WIDTH, LABEL, BAR, GAP, HEAD = 760, 150, 11, 9, 54
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #6e7781 }
  .title { font-weight: 600; font-size: 14px }
  .faint { font-size: 11px }
  rect { fill: #8c959f } .ours rect { fill: #2f81f7 } .second { opacity: 0.5 }
"""
"""Legible on light and dark pages alike: a picture may be told another scheme than that of the page around it."""

Bars = list[tuple[Peer, float | None, float | None]]


def write(report: Report, measured_on: str) -> None:
    drains = _bars(report, ("drain_one", "per_second"), ("drain_two", "per_second"))
    late = _bars(report, ("latency", "p50_ms"), ("latency", "p99_ms"))
    parts, top = [], 0.0
    for bars, title, names, better in (
        (drains, "No-op jobs drained per second", "one worker process, below it two", "more is better"),
        (
            late,
            "Milliseconds from enqueue to start at 50 jobs per second",
            "median, below it the 99th percentile",
            "less is better",
        ),
    ):
        part, height = _panel(bars, title, f"{names}; {better}")
        parts.append(f'<g transform="translate(0 {top:g})">{part}</g>')
        top += height
    for caption in (
        f"One machine, the queues in turn, {report.samples}; each with its fastest known settings; Redis without persistence.",
        measured_on,
    ):
        top += 16
        parts.append(f'<text class="faint" x="0" y="{top - 8:g}">{escape(caption)}</text>')
    size = f'width="{WIDTH}" height="{top:g}" viewBox="0 0 {WIDTH} {top:g}"'
    label = escape("Bar chart: drains and latency of Holdfast and other queues; the figures are in peers.md", quote=True)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">\n<style>{STYLE}</style>\n'
    (RESULTS / "peers.svg").write_text(svg + "\n".join(parts) + "\n</svg>\n", encoding="utf-8")


def _bars(report: Report, first: tuple[str, str], second: tuple[str, str]) -> Bars:
    found = [(peer, report.median_of(peer, *first), report.median_of(peer, *second)) for peer in report.peers]
    return [bar for bar in found if bar[1] is not None or bar[2] is not None]


def _panel(bars: Bars, title: str, subtitle: str) -> tuple[str, float]:
    most = max((value or 0.0 for _, *values in bars for value in values), default=1.0) or 1.0
    lines = [
        f'<text class="title" x="0" y="16">{escape(title)}</text>',
        f'<text class="faint" x="0" y="33">{escape(subtitle)}</text>',
    ]
    y = float(HEAD - 8)
    for peer, first, second in bars:
        lines.append(f"<g{' class=' + chr(34) + 'ours' + chr(34) if peer.name == 'holdfast' else ''}>")
        lines.append(f'<text x="{LABEL - 10}" y="{y + BAR + 4:g}" text-anchor="end">{escape(peer.title)}</text>')
        for kind, value in (("first", first), ("second", second)):
            if value is not None:
                width = max(1.0, value / most * (WIDTH - LABEL - 70))
                lines.append(f'<rect class="{kind}" x="{LABEL}" y="{y:g}" width="{width:.1f}" height="{BAR}" rx="2"/>')
                lines.append(f'<text class="faint" x="{LABEL + width + 6:.1f}" y="{y + BAR - 2:g}">{number(value)}</text>')
            y += BAR + 1
        lines.append("</g>")
        y += GAP
    return "".join(lines), y + 14
