"""A tiny suite for the tests of `tools/suite.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_suite import TinySuite
from tools import suite


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinySuite:
    monkeypatch.setenv("PYTHONPATH", str(suite.ROOT))
    return TinySuite(tmp_path)
