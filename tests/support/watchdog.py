"""Ends a test that hangs with the interpreter lock held, together with its process; pytest-xdist goes on in another one.

pytest-timeout needs that lock to fail a test. The watch of faulthandler is a thread in C that needs nothing. pytest's own
setting for it knows neither the mark `timeout` nor what comes after a first failure of a test, such as its teardown.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

TIMES = 1.25
"""So much longer than the time limit of the test: an ordinary hang fails it first, and its process goes on."""


class Watchdog:
    def __init__(self) -> None:
        assert sys.__stderr__ is not None
        self._stderr = os.dup(sys.__stderr__.fileno())  # of the process: that of a test is captured

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._watch(item)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        """pytest has just ended every watch, in favor of debuggers."""
        if isinstance(node, pytest.Item):
            self._watch(node)

    def pytest_unconfigure(self) -> None:
        os.close(self._stderr)

    def _watch(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("timeout")
        limit = float(mark.args[0] if mark else item.config.getoption("timeout") or item.config.getini("timeout") or 0)
        if limit:
            faulthandler.dump_traceback_later(limit * TIMES, exit=True, file=self._stderr)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("usepdb"):
        config.pluginmanager.register(Watchdog())
