"""What a database tells of itself: content, version, age, and what a scan with it would miss."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.extraction.advisories import status, update
from holdfast.extraction.advisories.command import advisories
from holdfast.extraction.advisories.cvss import base_score
from tests.support.advisories import EPSS, KEV, OSV, database, osv

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_the_age_is_that_of_the_data_and_not_of_the_download(tmp_path: Path) -> None:
    """Old data brought today is old."""
    path = tmp_path / "a.db"
    update(path, [str(OSV), str(EPSS), str(KEV)], now=NOW)
    found = status(path, now=NOW)
    assert found.age_days == {"advisories": 1050, "epss": 0, "kev": 2}
    assert found.warnings == ["The advisories are 1050 days old."]
    assert found.advisories and found.advisories.version.startswith("2024-01-01.")
    assert found.epss and found.epss.version == "v2025.03.14"
    assert found.kev and found.kev.version == "2026.11.13"
    assert found.ecosystems == {"Go": 1, "Maven": 1, "PyPI": 4, "crates.io": 1, "npm": 2}


def test_a_date_in_the_future_does_not_hide_the_age(tmp_path: Path) -> None:
    """One record of the year 9999 would keep a database young for ever."""
    path = database(tmp_path, osv("A-1", modified="2026-01-01T00:00:00Z"), osv("A-2", modified="9999-01-01T00:00:00Z"))
    assert status(path, now=NOW).age_days == {"advisories": 319}


def test_missing_feeds_are_told(tmp_path: Path) -> None:
    """No scores and no catalogue are a warning each."""
    warnings = status(database(tmp_path, osv("A-1", modified="2026-11-15T00:00:00Z")), now=NOW).warnings
    assert warnings == ["There are no EPSS scores in the database.", "There is no KEV catalogue in the database."]


def test_a_database_that_is_missing_or_has_no_advisories_is_not_usable(tmp_path: Path) -> None:
    """Both say what to do."""
    missing, empty = tmp_path / "missing.db", tmp_path / "empty.db"
    update(empty, [str(KEV)])
    for path in (missing, empty):
        found = status(path)
        assert not found.usable
        assert "holdfast advisories update" in found.warnings[0]


def test_the_commands_bring_and_tell(tmp_path: Path) -> None:
    """Status fails before the first update, and tells the content after it."""
    place = ["--database", str(tmp_path / "a.db")]
    run = CliRunner().invoke
    assert run(advisories, ["status", *place]).exit_code == 1
    assert "Brought in 10 advisories" in run(advisories, ["update", str(OSV), *place]).output
    told = run(advisories, ["status", "--json", *place])
    assert told.exit_code == 0
    assert json.loads(told.output)["ecosystems"]["PyPI"] == 4
    failed = run(advisories, ["update", str(tmp_path / "none"), *place])
    assert (failed.exit_code, failed.output) == (1, f"Error: There is no file or folder {tmp_path / 'none'}.\n")


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.1/AV:N/AC:L/PR:H/UI:N/S:U/C:H/I:H/A:H", 7.2),
        ("CVSS:3.0/AV:L/AC:H/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("CVSS:3.1/AV:N", None),
    ],
)
def test_a_base_score_is_that_of_the_specification(vector: str, score: float | None) -> None:
    """Well-known vectors have their published scores; other versions of CVSS have none here."""
    assert base_score(vector) == score
