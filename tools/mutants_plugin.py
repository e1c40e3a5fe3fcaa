"""A plugin of pytest that notes which test runs which lines: `HOLDFAST_MUTANTS_COVERAGE=folder pytest -p tools.mutants_plugin`.

Each process leaves its coverage, with the name of a test as context, and the seconds of each test that passed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = "HOLDFAST_MUTANTS_COVERAGE"
SOURCE = "HOLDFAST_MUTANTS_SOURCE"


class Noting:
    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        file = str(folder / "coverage")
        self._coverage = coverage.Coverage(data_file=file, data_suffix=True, source=[source], config_file=False)
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        passed = {name: round(took, 3) for name, took in self._seconds.items() if name not in self._failed}
        (self._folder / f"seconds-{os.getpid()}.json").write_text(json.dumps(passed), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get(FOLDER)
    shares_out = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if folder and not shares_out:
        config.pluginmanager.register(Noting(Path(folder), os.environ[SOURCE]))
