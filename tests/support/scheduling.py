"""Hands out the tests to the processes of pytest-xdist, file by file, so that the suite goes on after a process has died.

The scheduler of pytest-xdist gives the test that ended its process to the next one, again and again, and a process that
comes late waits for a second test or for the end, without end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class Files(LoadFileScheduling):  # type: ignore[misc]  # has no types
    def remove_node(self, node: WorkerController) -> str | None:
        """The test during which this process died, if it did. What it had left comes first for the others."""
        left = {
            scope: dict.fromkeys((test for test, done in tests.items() if not done), False)
            for scope, tests in self.assigned_work.pop(node).items()
        }
        unfinished: list[str] = [test for tests in left.values() for test in tests]
        if not unfinished:
            return None
        for scope, tests in reversed(left.items()):
            tests.pop(unfinished[0], None)
            if tests:
                self.workqueue[scope] = tests
                self.workqueue.move_to_end(scope, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return unfinished[0]

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins a test only once it knows the one after it, or that there is none."""
        if node not in self.registered_collections:
            return  # it has just begun in the place of one that died: `schedule` comes when it knows its tests
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()  # after what it has


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files | None:
    return Files(config, log) if config.getoption("dist") == "loadfile" else None
