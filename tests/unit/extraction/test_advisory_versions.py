"""The order of versions in each ecosystem that is covered, and one spelling for equal names and versions."""

from __future__ import annotations

import pytest

from holdfast.extraction.advisories.errors import NotComparable
from holdfast.extraction.advisories.versions import VERSION_CHARS_MAX, fold_name, fold_version, parse

SEMVER = (
    "0.0.0-0 0.0.0 1.0.0-0 1.0.0-2 1.0.0-11 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta.2 1.0.0-beta.11 "
    "1.0.0-rc.1 1.0.0 1.0.10 1.2.0 2.0.0 10.0.0"
)
PYTHON = "0.9 1.0.dev1 1.0a1.dev1 1.0a1 1.0b2 1.0rc1 1.0 1.0.post1.dev2 1.0.post1 1.0.1 1.10 2.0 1!0.1"
GO = (
    "v0.0.0-20190101000000-abcdef123456 v0.0.0-20200101000000-000000000000 v0.3.6-0.20210101000000-abcdef v0.3.6 "
    "v1.0.0-pre v1.0.0 v2.0.0+incompatible"
)
MAVEN = (
    "1.0-alpha-1 1.0-beta-2 1.0-milestone-1 1.0-rc1 1.0-SNAPSHOT 1.0 1.0-sp1 1.0-jre 1.0-1 1.0.1-rc1 1.0.1 1.1 "
    "2.0-beta9 2.0 10.0"
)
LADDERS = {"npm": SEMVER, "crates.io": SEMVER, "PyPI": PYTHON, "Go": GO, "Maven": MAVEN}


@pytest.mark.parametrize("ecosystem", LADDERS)
def test_versions_are_ordered_as_their_ecosystem_orders_them(ecosystem: str) -> None:
    """Every version comes before all that follow it on the ladder."""
    ladder = [parse(ecosystem, version) for version in LADDERS[ecosystem].split()]
    wrong = [(i, j) for i in range(len(ladder)) for j in range(i + 1, len(ladder)) if not ladder[i] < ladder[j]]
    assert wrong == []


@pytest.mark.parametrize(
    ("ecosystem", "one", "other"),
    [
        ("npm", "1.0.0+build1", "1.0.0+build2"),
        ("npm", "v1.2", "1.2.0"),
        ("Go", "v2.0.0+incompatible", "2.0.0"),
        ("PyPI", "1.0", "1.0.0"),
        ("PyPI", "1.0-RC1", "1.0rc1"),
        ("Maven", "1", "1.0.0"),
        ("Maven", "1.0.Final", "1.0.GA"),
        ("Maven", "1.0-RC1", "1.0-cr1"),
        ("Maven", "1.0a1", "1-alpha-1"),
        ("Maven", "1.rc1", "1-rc1"),
        ("Maven", "1.0.0-x", "1-x"),
    ],
)
def test_versions_that_are_the_same_are_equal(ecosystem: str, one: str, other: str) -> None:
    """Neither of two spellings of one version comes first."""
    assert parse(ecosystem, one) == parse(ecosystem, other)
    assert not parse(ecosystem, one) < parse(ecosystem, other)


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.x.1", "1.x"),
        ("1.x", "1-1"),
        ("1-1", "1.1"),
        ("1-0-2", "1-2"),
        ("1.foo", "1.foo1"),
        ("1-x-1", "1-x.1"),
        ("1.b-1", "1.a"),
    ],
)
def test_mavens_odd_corners_are_those_of_maven(lower: str, higher: str) -> None:
    """These are the answers of Maven 3.9."""
    assert parse("Maven", lower) < parse("Maven", higher)


@pytest.mark.parametrize(
    ("ecosystem", "version"),
    [
        ("npm", "*"),
        ("npm", "^1.0.0"),
        ("npm", "1.2.3.4"),
        ("npm", "1.0.0-a..b"),
        ("npm", "latest"),
        ("PyPI", "1.0-unknown-thing"),
        ("Go", "abcdef"),
        ("Maven", "${version}"[:2] + " x"),
        ("npm", "١.٠.٠"),
        ("Maven", "²"),
        ("PyPI", "1" * (VERSION_CHARS_MAX + 1)),
        ("RubyGems", "1.0.0"),
        ("npm", ""),
    ],
)
def test_a_version_without_a_certain_order_is_refused(ecosystem: str, version: str) -> None:
    """No guess is made about what is no version, or of an ecosystem that is not covered."""
    with pytest.raises(NotComparable):
        parse(ecosystem, version)


def test_names_are_folded_as_their_registry_folds_them() -> None:
    """PyPI and crates.io take several spellings for one name; the others do not."""
    assert fold_name("PyPI", "Ruamel__YAML.Clib") == "ruamel-yaml-clib"
    assert fold_name("crates.io", "Serde_json") == "serde-json"
    assert fold_name("npm", "JSONStream") == "JSONStream"
    assert fold_name("Go", "github.com/BurntSushi/toml") == "github.com/BurntSushi/toml"


@pytest.mark.parametrize(
    ("ecosystem", "version", "folded"),
    [
        ("PyPI", "2.0.0", "2"),
        ("PyPI", "01.10.0", "1.10"),
        ("PyPI", "1!2.0.0RC1", "1!2rc1"),
        ("PyPI", "1.0.0.post1", "1.post1"),
        ("PyPI", "not a version", "not a version"),
        ("Go", "v1.2.3+incompatible", "1.2.3"),
        ("Maven", "1.0.0", "1.0.0"),
    ],
)
def test_equal_versions_in_lists_have_one_spelling(ecosystem: str, version: str, folded: str) -> None:
    """A list of versions is searched by spelling, so the spelling must be one."""
    assert fold_version(ecosystem, version) == folded
