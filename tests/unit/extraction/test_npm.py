"""npm: what a lockfile, or package.json alone, says about direct, transitive, dev and optional packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.extraction.manifests import read_tree
from holdfast.extraction.manifests.source import Source
from holdfast.extraction.manifests.tree import TreeReader
from tests.support.inventories import FIXTURES, codes, direct, edges, scopes, transitive, unknown, write_files


def lock(root: Path, packages: dict[str, Any], **more: Any) -> Path:
    return write_files(root, {"package-lock.json": json.dumps({"lockfileVersion": 3, "packages": packages, **more})})


def test_the_sample_has_four_direct_packages_and_one_of_them_is_for_development() -> None:
    """A flat lockfile of version 3 is read whole."""
    inventory = read_tree(FIXTURES / "npm-app")
    assert direct(inventory) == {"lodash@4.17.20", "minimist@1.2.5", "mkdirp@0.5.5", "ms@2.1.2"}
    assert transitive(inventory) == set()
    assert scopes(inventory)["ms@2.1.2"] == "dev"
    assert edges(inventory) == {"mkdirp@0.5.5": ["minimist@1.2.5"]}
    assert inventory.problems == []


def test_a_nested_package_is_found_before_one_further_up(tmp_path: Path) -> None:
    """Edges follow the way Node looks for packages."""
    lock(
        tmp_path,
        {
            "": {"dependencies": {"a": "1", "@s/c": "1"}},
            "node_modules/a": {"version": "1.0.0", "dependencies": {"b": "^1"}},
            "node_modules/a/node_modules/b": {"version": "1.0.0"},
            "node_modules/b": {"version": "2.0.0"},
            "node_modules/@s/c": {"version": "3.0.0", "dependencies": {"b": "^2"}},
        },
    )
    inventory = read_tree(tmp_path)
    assert direct(inventory) == {"a@1.0.0", "@s/c@3.0.0"}
    assert transitive(inventory) == {"b@1.0.0", "b@2.0.0"}
    assert edges(inventory) == {"a@1.0.0": ["b@1.0.0"], "@s/c@3.0.0": ["b@2.0.0"]}


def test_what_only_development_or_options_need_has_that_scope(tmp_path: Path) -> None:
    """A package needed by both production and development is required."""
    lock(
        tmp_path,
        {
            "": {"dependencies": {"a": "1"}, "devDependencies": {"d": "1"}, "optionalDependencies": {"o": "1"}},
            "node_modules/a": {"version": "1.0.0", "dependencies": {"both": "1"}},
            "node_modules/d": {"version": "1.0.0", "dev": True, "dependencies": {"both": "1", "dd": "1"}},
            "node_modules/dd": {"version": "1.0.0", "dev": True},
            "node_modules/o": {"version": "1.0.0", "optional": True, "dependencies": {"oo": "1"}},
            "node_modules/oo": {"version": "1.0.0", "optional": True},
            "node_modules/both": {"version": "1.0.0"},
        },
    )
    assert scopes(read_tree(tmp_path)) == {
        "a@1.0.0": "required",
        "both@1.0.0": "required",
        "d@1.0.0": "dev",
        "dd@1.0.0": "dev",
        "o@1.0.0": "optional",
        "oo@1.0.0": "optional",
    }


def test_an_alias_is_the_package_it_stands_for(tmp_path: Path) -> None:
    """Advisories know the real name only."""
    lock(tmp_path, {"": {"dependencies": {"old": "npm:real@1"}}, "node_modules/old": {"name": "real", "version": "1.0.0"}})
    assert direct(read_tree(tmp_path)) == {"real@1.0.0"}


def test_version_1_takes_its_direct_packages_from_package_json(tmp_path: Path) -> None:
    """The old lockfile does not name them itself."""
    old = {
        "lockfileVersion": 1,
        "requires": True,
        "dependencies": {
            "a": {"version": "1.0.0", "requires": {"b": "^1"}, "dependencies": {"b": {"version": "1.5.0"}}},
            "b": {"version": "2.0.0", "dev": True},
            "alias": {"version": "npm:real@3.0.0", "requires": {"b": "*"}},
        },
    }
    write_files(tmp_path, {"package-lock.json": json.dumps(old)})
    assert unknown(read_tree(tmp_path)) == {"a@1.0.0", "b@1.5.0", "b@2.0.0", "real@3.0.0"}

    write_files(tmp_path, {"package.json": '{"dependencies": {"a": "1"}, "devDependencies": {"b": "2"}}'})
    inventory = read_tree(tmp_path)
    assert direct(inventory) == {"a@1.0.0", "b@2.0.0"}
    assert transitive(inventory) == {"b@1.5.0", "real@3.0.0"}
    assert edges(inventory) == {"a@1.0.0": ["b@1.5.0"], "real@3.0.0": ["b@2.0.0"]}


def test_version_2_is_read_by_its_packages(tmp_path: Path) -> None:
    """The old part of a lockfile of version 2 is for old clients and adds nothing."""
    lock(
        tmp_path,
        {"": {"dependencies": {"a": "1"}}, "node_modules/a": {"version": "1.0.0"}},
        lockfileVersion=2,
        dependencies={"a": {"version": "1.0.0"}},
    )
    inventory = read_tree(tmp_path)
    assert (direct(inventory), transitive(inventory)) == ({"a@1.0.0"}, set())


def test_package_json_alone_gives_direct_packages_and_says_that_the_lockfile_is_missing(tmp_path: Path) -> None:
    """Ranges have no version; local folders are no packages."""
    wanted = {"exact": "1.2.3", "range": "^1.0.0", "here": "file:../here", "old": "npm:real@2.0.0", "odd": 3}
    write_files(tmp_path, {"package.json": json.dumps({"dependencies": wanted, "devDependencies": []})})
    inventory = read_tree(tmp_path)
    assert direct(inventory) == {"exact@1.2.3", "range@", "real@2.0.0"}
    assert inventory.without_lockfile == ["package.json"]


def test_a_package_json_that_wants_nothing_needs_no_lockfile(tmp_path: Path) -> None:
    """Only a manifest with dependencies is told to bring its lockfile."""
    inventory = read_tree(write_files(tmp_path, {"package.json": '{"name": "a"}'}))
    assert [one.path for one in inventory.manifests] == ["package.json"]
    assert (inventory.components, inventory.problems) == ([], [])


def test_a_lockfile_of_another_kind_is_not_a_missing_one(tmp_path: Path) -> None:
    """The advice to commit a lockfile would be wrong."""
    files: dict[str, str | bytes] = {"package.json": '{"dependencies": {"a": "1.0.0"}}', "yarn.lock": ""}
    inventory = read_tree(write_files(tmp_path, files))
    assert codes(inventory) == [("package.json", "lockfile_unsupported")]
    assert [(one.path, one.read) for one in inventory.manifests] == [("package.json", True), ("yarn.lock", False)]


def test_a_broken_lockfile_leaves_what_package_json_says(tmp_path: Path) -> None:
    """The reader says that the lockfile is broken and goes on with what is left."""
    files: dict[str, str | bytes] = {"package.json": '{"dependencies": {"a": "1.0.0"}}', "package-lock.json": '{"packages": '}
    inventory = read_tree(write_files(tmp_path, files))
    assert direct(inventory) == {"a@1.0.0"}
    assert codes(inventory) == [("package-lock.json", "unreadable"), ("package.json", "lockfile_unreadable")]


def test_a_member_of_a_workspace_gets_its_own_part_of_the_lockfile_above(tmp_path: Path) -> None:
    """With a package path, the lockfile of the root counts, and only what the member needs of it."""
    lock(
        tmp_path,
        {
            "": {"workspaces": ["packages/*"], "dependencies": {"top": "1"}},
            "packages/web": {"dependencies": {"a": "1", "lib": "1"}},
            "packages/lib": {"dependencies": {"c": "1"}},
            "packages/other": {"dependencies": {"z": "1"}},
            "node_modules/lib": {"resolved": "packages/lib", "link": True},
            "node_modules/top": {"version": "1.0.0"},
            "node_modules/a": {"version": "1.0.0", "dependencies": {"b": "1"}},
            "node_modules/b": {"version": "1.0.0"},
            "node_modules/c": {"version": "1.0.0"},
            "node_modules/z": {"version": "1.0.0"},
        },
    )
    write_files(tmp_path, {"packages/web/package.json": '{"dependencies": {"a": "1", "lib": "1"}}'})
    write_files(tmp_path, {"packages/lib/package.json": '{"dependencies": {"c": "1"}}'})

    member = read_tree(tmp_path, "packages/web")
    assert direct(member) == {"a@1.0.0", "c@1.0.0"}
    assert transitive(member) == {"b@1.0.0"}
    assert {one.manifest for one in member.components} == {"package-lock.json"}
    assert [one.path for one in member.manifests] == ["packages/web/package.json", "package-lock.json"]

    both = read_tree(tmp_path, "packages")
    assert (direct(both), both.problems) == ({"a@1.0.0", "c@1.0.0"}, [])

    whole = read_tree(tmp_path)
    assert direct(whole) == {"a@1.0.0", "c@1.0.0", "top@1.0.0", "z@1.0.0"}
    assert whole.problems == member.problems == []


def test_the_lockfile_above_is_read_for_all_members_at_once(tmp_path: Path) -> None:
    """Hundreds of manifests below a package path do not read a large lockfile hundreds of times."""
    lock(tmp_path, {"": {}, "node_modules/a": {"version": "1.0.0"}})
    write_files(tmp_path, {f"p/{number}/package.json": '{"dependencies": {"a": "1.0.0"}}' for number in range(5)})
    reads: list[str] = []
    source = Source(tmp_path)
    real = source.read

    def counted(path: str) -> bytes:
        reads.append(path)
        return real(path)

    source.read = counted  # type: ignore[method-assign]
    inventory = TreeReader(source, "p").read()
    assert reads.count("package-lock.json") == 1
    assert len(inventory.without_lockfile) == 5
