"""The release before: its code as it was, taken out of the history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.source import ROOT

PREVIOUS = "7767f18"
"""The commit of the release before. Whoever releases sets it to that release."""


@pytest.fixture(scope="session")
def previous_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH."""
    command = ["git", "archive", "--format=tar", PREVIOUS, "src/holdfast"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"the history of this copy does not reach back to {PREVIOUS}, the release before")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"
