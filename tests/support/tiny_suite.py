"""A suite of a few files, run by `tools/suite.py` with the project's own settings and shorter limits."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tools import suite

FAILS_ONCE = """
    from pathlib import Path

    def test_fails_once():
        seen = Path(__file__).with_name("seen")
        first = not seen.exists()
        seen.touch()
        assert not first
"""


class TinySuite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text(
            "from tests.support.scheduling import *\nfrom tests.support.watchdog import *\n", encoding="utf-8"
        )

    def add(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"test_{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")

    def run(self, *, timeout: float = 2, limit: float = 250) -> int:
        settings = ["-c", str(suite.ROOT / "pyproject.toml"), "--rootdir", str(self.folder)]
        limits = ["-o", f"timeout={timeout}", "--limit", str(limit)]
        parts = {"tests": ["--numprocesses", "2", "--dist", "loadfile", str(self.folder)]}
        return suite.main([*settings, *limits], self.folder, parts)
