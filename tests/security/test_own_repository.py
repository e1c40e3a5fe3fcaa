"""Our own extraction over what we ship: `make scan` without the tests, whose texts only look like secrets."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.source import ROOT
from tools.scan import ALLOWED, entries, findings, our_files, scanned, wrongs


def test_nothing_that_we_ship_looks_like_a_secret_without_a_reason(tmp_path: Path) -> None:
    """Whatever `holdfast extract` finds outside of the tests is on the list of what is known, no more and no less."""
    for name in our_files():
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    results = scanned(tmp_path)
    allowed = [entry for entry in entries(ALLOWED.read_text(encoding="utf-8")) if not entry.path.startswith("tests/")]
    assert wrongs(findings(results), allowed, results["steps"]) == []
