"""The samples of a soak as a picture: small panels with lines over minutes, drawn by hand, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tools.soak_samples import Sample

WIDTH, PANEL, LEFT, PLOT = 760, 128, 56, 84
COLOURS = ("#2f81f7", "#d29922", "#3fb950", "#a371f7")
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #6e7781 }
  .title { font-weight: 600; font-size: 13px }
  polyline { fill: none; stroke-width: 1.5 }
  line { stroke: #8c959f; stroke-width: 0.5; opacity: 0.6 }
"""
PANELS = {
    "Memory (RSS), MB": ("worker_1_rss_mb", "worker_2_rss_mb", "server_rss_mb", "producer_rss_mb"),
    "Open files": ("worker_1_files", "worker_2_files", "server_files"),
    "Threads": ("worker_1_threads", "worker_2_threads", "server_threads"),
    "Milliseconds from enqueue to start": ("p50_ms", "p99_ms"),
    "Size of the store, MB": ("store_mb",),
    "Dead rows (on SQLite: free pages)": ("dead_rows",),
    "Jobs that wait or run": ("waiting",),
    "Processor, percent of one core, without the database server": ("cpu_percent",),
}
_ENDINGS = ("_rss_mb", "_files", "_threads", "_ms")


def chart(samples: Sequence[Sample], caption: str) -> str:
    height = PANEL * len(PANELS) + 18
    parts = [_panel(samples, title, names, number * PANEL) for number, (title, names) in enumerate(PANELS.items())]
    label = escape(f"Line charts of a soak: {caption}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{label}">\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + f'\n<text x="0" y="{height - 5}">{escape(caption)}</text>\n</svg>\n'
    )


def _panel(samples: Sequence[Sample], title: str, names: Sequence[str], top: float) -> str:
    most = max((sample[name] for sample in samples for name in names), default=0.0) or 1.0
    until = samples[-1]["seconds"] or 1.0
    lines = [f'<g transform="translate(0 {top:g})">', f'<text class="title" x="0" y="14">{escape(title)}</text>']
    for part in (0.0, 0.5, 1.0):
        y = _y(part)
        lines.append(f'<line x1="{LEFT}" y1="{y:g}" x2="{WIDTH}" y2="{y:g}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{part * most:,.4g}</text>')
    for colour, name in zip(COLOURS, names, strict=False):
        points = " ".join(f"{LEFT + (WIDTH - LEFT) * one['seconds'] / until:.1f},{_y(one[name] / most):.1f}" for one in samples)
        lines.append(f'<polyline stroke="{colour}" points="{points}"/>')
    if len(names) > 1:
        lines.append(_legend(names))
    lines.append(f'<text x="{WIDTH}" y="{PANEL - 6}" text-anchor="end">{until / 60:.0f} min</text></g>')
    return "".join(lines)


def _legend(names: Sequence[str]) -> str:
    found, x = [], WIDTH - 92 * len(names)
    for colour, name in zip(COLOURS, names, strict=False):
        shown = next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end)), name).replace("_", " ")
        found.append(f'<text x="{x}" y="14" style="fill: {colour}">{escape(shown)}</text>')
        x += 92
    return "".join(found)


def _y(part: float) -> float:
    return 24 + PLOT * (1 - part)
