"""A pytest plugin: an app's jobs in tests, on a database of their own. `pip install holdfast` is all that it needs.

Override the fixture `holdfast_app` where the app is not found by HOLDFAST_APP, the settings file or `tasks:hf`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.clock import ManualClock
    from holdfast.integrations.testing import JobsInTest


@pytest.fixture
def holdfast_app() -> Holdfast:
    """The application under test."""
    from holdfast.cli.apps import app_with_tasks
    from holdfast.cli.call import Call

    return app_with_tasks(Call())


@pytest.fixture
def holdfast_clock() -> ManualClock:
    """The time of the jobs: it moves by `holdfast_clock.advance(60)` alone."""
    from holdfast.clock import ManualClock

    return ManualClock()


@pytest.fixture(scope="session")
def _holdfast_template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """A migrated file, made once for each app."""
    from holdfast.integrations.testing import migrated_file

    made: dict[int, Path] = {}

    def template(app: Any) -> Path:
        if id(app) not in made:
            made[id(app)] = migrated_file(app, tmp_path_factory.mktemp("holdfast") / "template.db")
        return made[id(app)]

    return template


@pytest.fixture
def holdfast_jobs(
    holdfast_app: Holdfast, holdfast_clock: ManualClock, _holdfast_template: Callable[[Any], Path], tmp_path: Path
) -> Iterator[JobsInTest]:
    """The app's jobs: `drain`, `assert_enqueued`, `enqueued`. They are in a new SQLite file, at the time of holdfast_clock."""
    from holdfast.integrations.testing import JobsInTest, copied, on_file

    path = copied(_holdfast_template(holdfast_app), tmp_path / "holdfast-jobs.db")
    with on_file(holdfast_app, path, holdfast_clock):
        yield JobsInTest(holdfast_app, holdfast_clock)


@pytest.fixture
def holdfast_inline(holdfast_jobs: JobsInTest) -> Iterator[JobsInTest]:
    """The same, and every job runs at once, where it is enqueued; one that fails raises there."""
    with holdfast_jobs.inline():
        yield holdfast_jobs
