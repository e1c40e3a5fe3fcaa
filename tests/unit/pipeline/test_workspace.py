"""Folders of runs: kept while their run lives, removed whatever they hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.pipeline.memory import Cgroup, Process, bytes_used_exactly
from holdfast.pipeline.workspace import Workspace, remove_tree, sweep


def test_only_folders_without_a_living_run_are_swept(tmp_path: Path) -> None:
    """The lock says who lives; other files in that place are nobody's business."""
    living = Workspace.create(tmp_path)
    (tmp_path / "run-dead" / "deep").mkdir(parents=True)
    (tmp_path / "run-file").touch()
    (tmp_path / "other").mkdir()
    assert sweep(tmp_path) == 1
    assert {path.name for path in tmp_path.iterdir()} == {living.path.name, "run-file", "other"}
    assert living.remove() and not living.path.exists()


def test_a_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        made = Workspace.create(tmp_path / "new")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (made.path, made.path.parent)] == [0o700, 0o700]
    assert made.remove()


def test_a_place_that_somebody_else_prepared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that everybody may write to, a link or an open folder may be a trap."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trap = tmp_path / f"holdfast-{os.getuid()}"
    trap.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="private folder"):
        Workspace.create(None)
    trap.unlink()
    made = Workspace.create(None)
    assert made.path.parent == trap and made.remove()


def test_hostile_trees_are_removed_and_nothing_outside(tmp_path: Path) -> None:
    """Nested deeper than a path may be long, closed folders, and links that lead out."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    top = tmp_path / "tree"
    top.mkdir()
    (top / "link").symlink_to(outside)
    os.mkfifo(top / "pipe")
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    place = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("deeper", dir_fd=place)
        below = os.open("deeper", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    assert remove_tree(top) and not top.exists()
    assert (outside / "kept").exists()


def test_a_cgroup_gets_its_limit_and_tells_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written and read, on plain files in the kernel's layout; the kernel's own part is not shown here."""
    monkeypatch.setattr("holdfast.pipeline.memory._own_cgroup", lambda: "/service")
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "cgroup.subtree_control").write_text("cpu memory\n")
    group = Cgroup.create("tool", 100, tmp_path)
    assert group is not None
    folder = tmp_path / "service" / "tool"
    group.add(42)
    assert (folder / "memory.max").read_text() == str(100 * 1024 * 1024)
    assert (folder / "cgroup.procs").read_text() == "42"
    (folder / "memory.events").write_text("max 9\noom 1\noom_kill 2\n")
    (folder / "memory.peak").write_text("1048576\n")
    assert (group.oom_kills, group.peak_bytes) == (2, 1048576)


def test_where_no_cgroup_can_be_made_there_is_none(tmp_path: Path) -> None:
    """The watcher alone keeps the limit then."""
    assert Cgroup.create("tool", 100, tmp_path / "nowhere") is None


def test_a_process_that_has_ended_takes_no_memory() -> None:
    """Whatever the table said of it a moment before: tools that end must not seem too large."""
    gone = Process(2**30, 1, 1, 1, 1, rss_bytes=100 * 1024 * 1024, alive=True)
    assert bytes_used_exactly([gone]) == 0
