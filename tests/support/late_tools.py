"""Tools that are late when they are ready for it, however long they take to start on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holdfast.pipeline import supervise

LATE_SECONDS = 1000.0


def late_once(monkeypatch: pytest.MonkeyPatch, is_ready: Callable[[], object]) -> None:
    """For those who watch tools a thousand seconds pass as soon as this is true."""
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + (LATE_SECONDS if is_ready() else 0))
    monkeypatch.setattr(supervise, "time", clock)
