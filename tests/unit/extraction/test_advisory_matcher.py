"""The matcher: exact on the sample repositories, and plain about what it did not check."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.extraction.advisories import DatabaseUnavailable, Matcher, update
from holdfast.extraction.manifests import read_tree
from tests.support.advisories import EPSS, KEV, OSV, SAMPLES, component, database, ids, match, osv

EXPECTED = {
    "npm-app": 2, "py-req": 4, "py-poetry": 1, "py-uv": 2, "go-app": 1, "rust-app": 1, "maven-app": 1, "empty-repo": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("advisories") / "advisories.db"
    update(path, [str(OSV), str(EPSS), str(KEV)])
    return path


@pytest.mark.parametrize("repository", EXPECTED)
def test_a_sample_repository_has_the_vulnerabilities_it_should_have(samples: Path, repository: str) -> None:
    """From manifest to finding, in every covered ecosystem."""
    found = match(samples, *read_tree(SAMPLES / repository).components)
    assert len(found.vulnerabilities) == EXPECTED[repository], ids(found)
    assert found.unjudged == []


def test_a_finding_tells_severity_fix_and_how_likely_it_is_exploited(samples: Path) -> None:
    """Score by the vector, EPSS and KEV by the alias."""
    (found,) = match(samples, component("Maven/org.apache.logging.log4j:log4j-core", "2.14.1")).vulnerabilities
    assert (found.id, found.aliases, found.severity, found.cvss_score) == (
        "GHSA-jfh8-c2jp-5v3q", ["CVE-2021-44228"], "critical", 10.0,
    )  # fmt: skip
    assert (found.fixed_in, found.epss, found.percentile, found.kev) == (["2.15.0"], 0.944, 0.9995, True)


def test_a_withdrawn_advisory_never_holds(samples: Path) -> None:
    """The sample names every version of `ms`, and is withdrawn."""
    assert match(samples, component("npm/ms", "1.0.0")).vulnerabilities == []


@pytest.mark.parametrize(("version", "affected"), [("2.19.9", False), ("2.20.0", True), ("2.25.0", True), ("2.25.1", False)])
def test_the_last_affected_version_is_affected(samples: Path, version: str, affected: bool) -> None:
    """`last_affected` includes its version, and `introduced` too."""
    assert bool(match(samples, component("PyPI/requests", version)).vulnerabilities) == affected


def test_names_and_listed_versions_match_in_any_spelling(samples: Path) -> None:
    """Flask 2.0 is flask 2.0.0."""
    assert ids(match(samples, component("PyPI/Flask", "2.0"))) == ["FIX-0003-versions-list"]


def test_the_same_hole_told_by_several_databases_is_one_finding(tmp_path: Path) -> None:
    """Aliases are joined through records that hold for other packages, and the worst severity counts."""
    path = database(
        tmp_path,
        osv("PYSEC-1", "PyPI/left", {"introduced": "0"}, {"fixed": "2.0"}, aliases=["X-1"]),
        osv("GHSA-1", "PyPI/left", {"introduced": "0"}, {"fixed": "2.0.1"}, database_specific={"severity": "HIGH"}),
        osv("X-1", "PyPI/other", aliases=["GHSA-1", "CVE-2021-44228"]),
        feeds=[EPSS, KEV],
    )
    (found,) = match(path, component("PyPI/left", "1.0")).vulnerabilities
    assert (found.id, found.aliases) == ("GHSA-1", ["CVE-2021-44228", "PYSEC-1", "X-1"])
    assert (found.severity, found.fixed_in, found.epss, found.kev) == ("high", ["2.0.1", "2.0"], 0.944, True)


def test_two_holes_of_one_package_are_two_findings(tmp_path: Path) -> None:
    """Only aliases are joined; being related is not being the same."""
    path = database(tmp_path, osv("A-1", related=["A-2"]), osv("A-2"))
    assert ids(match(path, component("npm/left", "1.0.0"))) == ["A-1", "A-2"]


def test_a_package_in_several_manifests_is_found_once(tmp_path: Path) -> None:
    """A finding belongs to a package version, not to a place it is named in."""
    twice = [component("npm/left", "1.0.0", manifest=place) for place in ("a/package.json", "b/package.json")]
    assert ids(match(database(tmp_path, osv("A-1")), *twice)) == ["A-1"]


@pytest.mark.parametrize(("version", "code"), [("", "no_version"), ("*", "not_comparable"), ("1.2.3.4", "not_comparable")])
def test_a_version_that_cannot_be_judged_is_reported(tmp_path: Path, version: str, code: str) -> None:
    """It is neither affected nor fine, and the advisories in question are named."""
    found = match(database(tmp_path, osv("A-1", "npm/left", {"introduced": "1.0.0"})), component("npm/left", version))
    assert found.vulnerabilities == []
    assert [(each.code, each.advisories) for each in found.unjudged] == [(code, ["A-1"])]
    assert "Components with advisories that could not be judged by version: 1." in found.warnings


def test_a_version_that_cannot_be_judged_but_has_no_advisories_is_no_news(tmp_path: Path) -> None:
    """Nothing is reported about packages nobody has published anything on."""
    assert match(database(tmp_path, osv("A-1")), component("npm/right", "*")).unjudged == []


def test_components_without_advisories_for_their_ecosystem_are_not_called_checked(tmp_path: Path) -> None:
    """Neither an ecosystem that is not covered nor one whose advisories were never brought counts as clean."""
    found = match(
        database(tmp_path, osv("A-1")), component("RubyGems/x", "1"), component("PyPI/x", "1"), component("npm/x", "1.0.0")
    )
    assert (found.checked, found.not_covered) == (1, {"PyPI": 1, "RubyGems": 1})
    assert len(found.warnings) == 2


def test_without_the_feeds_nothing_is_said_about_exploits(tmp_path: Path) -> None:
    """No catalogue is not the same as not in the catalogue."""
    (found,) = match(database(tmp_path, osv("A-1", aliases=["CVE-2021-44228"])), component("npm/left", "1.0.0")).vulnerabilities
    assert (found.epss, found.percentile, found.kev) == (None, None, None)


def test_a_database_that_would_check_nothing_is_refused(tmp_path: Path) -> None:
    """Missing, damaged and without advisories are errors, not clean scans."""
    missing, damaged, empty = (tmp_path / name for name in ("missing.db", "damaged.db", "empty.db"))
    damaged.write_bytes(b"SQLite format 3\x00" + b"\xff" * 500)
    update(empty, [str(EPSS)])
    for path in (missing, damaged, empty):
        with pytest.raises(DatabaseUnavailable, match="holdfast advisories update"):
            Matcher(path)
