"""Reading a folder: which manifests count, what a package path does, and what "nothing found" means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.extraction.manifests import ManifestProblem, read_tree
from tests.support.inventories import FIXTURES, codes, direct, write_files

NPM = {"lodash@4.17.20", "minimist@1.2.5", "mkdirp@0.5.5", "ms@2.1.2"}
PYTHON = {"flask@2.0.1", "requests@2.25.0", "pyyaml@5.3.1", "jinja2@2.11.2"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", NPM | PYTHON), ("web", NPM), ("./web/", NPM), ("services", PYTHON), ("services/../web", NPM), ("nowhere", set())],
)
def test_a_package_path_chooses_a_part_of_a_monorepo(path: str, expected: set[str]) -> None:
    """Manifests keep their paths from the root, whatever part is read."""
    inventory = read_tree(FIXTURES / "monorepo", path)
    assert direct(inventory) == expected
    assert {one.manifest for one in inventory.components} <= {"web/package-lock.json", "services/api/requirements.txt"}


def test_no_manifest_an_unread_one_and_one_without_lockfile_are_told_apart(tmp_path: Path) -> None:
    """Each of them has another advice for its owner."""
    nothing = read_tree(FIXTURES / "empty-repo")
    assert (nothing.manifests, nothing.components, nothing.without_lockfile) == ([], [], [])

    unread = read_tree(write_files(tmp_path / "ruby", {"Gemfile.lock": "", "app/App.csproj": ""}))
    assert [(one.path, one.ecosystem, one.read) for one in unread.manifests] == [
        ("Gemfile.lock", "RubyGems", False),
        ("app/App.csproj", "NuGet", False),
    ]
    assert unread.without_lockfile == []

    unlocked = read_tree(write_files(tmp_path / "npm", {"package.json": '{"dependencies": {"a": "^1"}}'}))
    assert [one.read for one in unlocked.manifests] == [True]
    assert unlocked.without_lockfile == ["package.json"]


@pytest.mark.parametrize("path", ["..", "web/../../x", "../monorepo-two", "a\0b"])
def test_a_package_path_cannot_leave_the_repository(path: str) -> None:
    """Nothing outside is read, and the error says so."""
    with pytest.raises(ManifestProblem, match="leads out of the repository"):
        read_tree(FIXTURES / "monorepo", path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither to files, nor to folders, nor by the package path, nor by an included file."""
    secret = write_files(tmp_path / "outside", {"requirements.txt": "secret==1.0\n"})
    root = write_files(tmp_path / "repo", {"real/requirements.txt": "-r linked.txt\nflask==2.0.1\n"})
    (root / "requirements.txt").symlink_to(secret / "requirements.txt")
    (root / "real" / "linked.txt").symlink_to(secret / "requirements.txt")
    (root / "folder").symlink_to(secret)
    (root / "loop").symlink_to(root)
    inventory = read_tree(root)
    assert direct(inventory) == {"flask@2.0.1"}
    assert codes(inventory) == [("real/linked.txt", "link")]
    with pytest.raises(ManifestProblem):
        read_tree(root, "folder")


def test_pipes_and_unreadable_folders_do_not_stop_the_reading(tmp_path: Path) -> None:
    """A named pipe would wait for ever."""
    root = write_files(tmp_path, {"requirements.txt": "-r pipe.txt\nflask==2.0.1\n"})
    os.mkfifo(root / "pipe.txt")
    os.mkfifo(root / "package.json")
    inventory = read_tree(root)
    assert direct(inventory) == {"flask@2.0.1"}
    assert codes(inventory) == [("pipe.txt", "unreadable")]


def test_copies_of_other_peoples_packages_are_not_read(tmp_path: Path) -> None:
    """Installed and vendored packages bring manifests of their own."""
    folders = ["node_modules/a", "vendor/b", ".venv/c", ".git/d"]
    write_files(tmp_path, {f"{folder}/package.json": '{"dependencies": {"x": "1.0.0"}}' for folder in folders})
    assert read_tree(tmp_path).manifests == []


def test_a_path_that_is_no_text_is_stored_as_text(tmp_path: Path) -> None:
    """Names of files are bytes; what is stored can be printed and sent."""
    folder = os.fsencode(tmp_path) + b"/bad\xff\nname"
    os.mkdir(folder)
    with open(folder + b"/requirements.txt", "w", encoding="utf-8") as file:
        file.write("flask==2.0.1\n")
    (component,) = read_tree(tmp_path).components
    assert component.manifest == "bad\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}name/requirements.txt"


def test_names_that_no_database_takes_are_left_out_and_counted(tmp_path: Path) -> None:
    """A package with a null byte in its name is not a package."""
    content = '{"packages": {"": {"dependencies": {"a": "1"}}, "node_modules/a": {"version": "1.0\\u0000"}}}'
    inventory = read_tree(write_files(tmp_path, {"package-lock.json": content}))
    assert (inventory.components, codes(inventory)) == ([], [("package-lock.json", "name_invalid")])


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    """Order does not depend on the file system."""
    write_files(tmp_path, {f"{letter}/requirements.txt": f"{letter}==1.0\n" for letter in "zyxabc"})
    assert read_tree(tmp_path) == read_tree(tmp_path)
    assert [one.name for one in read_tree(tmp_path).components] == list("abcxyz")
