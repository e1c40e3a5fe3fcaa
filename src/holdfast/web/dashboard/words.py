"""How numbers, spans, times and states are written for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

COUNT_CAP = 10_000
JSON_CHARS_MAX = 100_000
SENTENCES = {
    "cancelled": "Cancelled.",
    "cancelling": "Asked to stop; it is cancelling until the worker confirms.",
    "started": "Started.",
    "retried": "Queued again.",
    "paused": "Paused: nothing new starts, what runs goes on.",
    "resumed": "Resumed.",
    "saved": "Saved.",
    "added": "Added.",
    "removed": "Removed.",
    "asked": "Asked for; it may take a moment until it shows.",
    "sent": "On its way; what becomes of it shows below.",
    "revoked": "Revoked; browser sessions that began with it have ended too.",
    "welcome": "Logged in.",
}
"""What a page says after something was done. The address names one of these, so that no link can put words into our mouth."""


def number(value: float | None) -> str:
    """With thousands set apart; small ones with what tells them apart."""
    if value is None:
        return "–"
    if isinstance(value, float) and value < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def capped(value: int, cap: int = COUNT_CAP) -> str:
    """A count that stopped at its cap: `10k+`, `500+`."""
    if value < cap:
        return number(value)
    return f"{cap // 1000}k+" if cap >= 1000 else f"{cap}+"


def span(seconds: float | None) -> str:
    """`840 ms`, `4.2 s`, `4m 12s`, `3h 5m`, `2d 4h`."""
    if seconds is None or math.isnan(seconds):
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s" if whole < 600 and whole % 60 else f"{whole // 60}m"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60}m" if whole % 3600 >= 60 else f"{whole // 3600}h"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h" if whole % 86_400 >= 3600 else f"{whole // 86_400}d"


def dollars(amount: float | None) -> str:
    """Small amounts with as much as tells them from nothing."""
    if amount is None:
        return "–"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def ago(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    rough = span(abs(seconds)).split(" ")[0] if abs(seconds) >= 60 else f"{abs(seconds):.0f} s"
    if abs(seconds) < 1:
        return "now"
    return f"{rough} ago" if seconds > 0 else f"in {rough}"


def exactly(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def json_text(value: Any) -> str:
    """As it was stored: numbers are not rounded on their way through a browser."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > JSON_CHARS_MAX:
        return text[:JSON_CHARS_MAX] + f"\n… {len(text) - JSON_CHARS_MAX:,} more characters; the API has all of it"
    return text


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
