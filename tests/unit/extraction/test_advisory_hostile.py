"""Records, feeds and archives of somebody who means harm: bounded, counted, and never an exception of another kind."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.extraction.advisories import records, sources, update
from holdfast.extraction.advisories.aliases import GROUP_NAMES_MAX, AliasGroups
from holdfast.extraction.advisories.cvss import base_score
from holdfast.extraction.advisories.feeds import Epss
from holdfast.extraction.advisories.records import BadRecord, read_record
from tests.support.advisories import component, database, ids, match, osv
from tests.support.fuzzing import examples

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["id", "modified", "withdrawn", "aliases", "summary", "severity", "database_specific", "affected"]


@settings(max_examples=examples(150), deadline=None)
@given(field=st.sampled_from(FIELDS), value=anything)
def test_a_field_of_a_wrong_type_is_survived(field: str, value: Any) -> None:
    """The record is used without it, or refused with a reason."""
    try:
        read_record(json.dumps({**osv("A-1"), field: value}).encode())
    except BadRecord:
        pass


@settings(max_examples=examples(150), deadline=None)
@given(value=anything, place=st.sampled_from(["package", "ranges", "versions", "severity", "events"]))
def test_a_package_of_a_wrong_shape_is_survived(value: Any, place: str) -> None:
    """Somebody who asks about the package is told, or the package is counted as malformed."""
    record = osv("A-1")
    inside = record["affected"][0]["ranges"][0] if place == "events" else record["affected"][0]
    inside[place] = value
    read_record(json.dumps(record).encode())


@settings(max_examples=examples(100), deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(content: bytes) -> None:
    """Nothing but `BadRecord` comes out."""
    with pytest.raises(BadRecord):
        read_record(content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": "A", "affected": ' + b"[" * 100_000,
        b'{"id": "A", "x": ' + b'{"a":' * 100_000,
        b'{"id": "\\ud800"}',
        b'{"id": ""}',
        b'{"id": "a b"}',
        json.dumps({"id": "A", "affected": [{}] * (records.AFFECTED_MAX + 1)}).encode(),
    ],
    ids=["deep list", "deep object", "half a surrogate", "no id", "blank in the id", "too many packages"],
)
def test_a_record_beyond_all_bounds_is_refused(content: bytes) -> None:
    """Depth, size and names have limits."""
    with pytest.raises(BadRecord):
        read_record(content)


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": "1.0.0"},
        {"versions": ["1.0.0", 5]},
        {"versions": ["1"] * (records.VERSIONS_MAX + 1)},
        {"ranges": [{"type": "NEW", "events": [{"introduced": "0"}]}]},
        {"ranges": [{"type": "SEMVER", "events": [{"fixed": "1.0.0"}]}]},
        {"ranges": [{"type": "SEMVER", "events": [{"introduced": 0}]}]},
        {"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}] * (records.EVENTS_MAX + 1)}]},
        {"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]},
        {},
    ],
)
def test_a_package_whose_versions_nobody_can_make_out_is_reported_when_it_is_used(
    tmp_path: Path, affected: dict[str, Any]
) -> None:
    """The advisory may hold, so silence would be a lie."""
    path = database(tmp_path, {"id": "A-1", "affected": [{"package": {"ecosystem": "npm", "name": "left"}, **affected}]})
    found = match(path, component("npm/left", "1.0.0"))
    assert (found.vulnerabilities, [each.advisories for each in found.unjudged]) == ([], [["A-1"]])


def test_unknown_ecosystems_are_counted_and_the_count_is_bounded(tmp_path: Path) -> None:
    """Ten thousand invented names do not fill anything."""
    packages = [{"package": {"ecosystem": f"{number}-" + "x" * 500, "name": "a"}} for number in range(4_000)]
    (tmp_path / "r.json").write_text(json.dumps([osv("A-1"), {"id": "A-2", "affected": packages}]), encoding="utf-8")
    found = update(tmp_path / "a.db", [str(tmp_path / "r.json")])
    assert 0 < len(found.not_covered) <= 50
    assert max(map(len, found.not_covered)) <= 64


def test_aliases_in_a_circle_are_one_group(tmp_path: Path) -> None:
    """Also an alias of itself, and the same one many times."""
    records = [osv("A-1", aliases=["A-2", "A-1"]), osv("A-2", aliases=["A-3"] * 50), osv("A-3", aliases=["A-1", 5, None])]
    (found,) = match(database(tmp_path, *records), component("npm/left", "1.0.0")).vulnerabilities
    assert (found.id, found.aliases) == ("A-1", ["A-2", "A-3"])


def test_a_record_cannot_fold_everything_into_one_group() -> None:
    """A chain of thousands of names stays in groups of a bounded size."""
    groups = AliasGroups()
    for number in range(5_000):
        groups.join(f"A-{number}", [f"A-{number + 1}"])
    sizes: dict[int, int] = {}
    for _, group in groups.members():
        sizes[group] = sizes.get(group, 0) + 1
    assert max(sizes.values()) <= GROUP_NAMES_MAX


def test_a_huge_record_in_an_archive_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and the others are used."""
    monkeypatch.setattr(sources, "RECORD_BYTES_MAX", 1_000)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", b'{"id": "' + b"A" * 1_000_000 + b'"}')
        archive.writestr("../../good.json", json.dumps(osv("A-1")))
    found = update(tmp_path / "a.db", [str(tmp_path / "all.zip")])
    assert (found.advisories, found.skipped) == (1, {"too large": 1})


def test_a_summary_is_one_short_printable_line(tmp_path: Path) -> None:
    """Control characters of a stranger do not reach a terminal."""
    path = database(tmp_path, osv("A-1", summary="bad\x1b[31m\nnews" + "x" * 10_000))
    (found,) = match(path, component("npm/left", "1.0.0")).vulnerabilities
    assert found.summary.startswith("bad [31m news")
    assert len(found.summary) <= records.SUMMARY_CHARS_MAX


def test_a_link_inside_a_folder_is_not_followed(tmp_path: Path) -> None:
    """A folder of records cannot point elsewhere."""
    (tmp_path / "outside.json").write_text(json.dumps(osv("A-1")), encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    (folder / "good.json").write_text(json.dumps(osv("A-2")), encoding="utf-8")
    update(tmp_path / "a.db", [str(folder)])
    assert ids(match(tmp_path / "a.db", component("npm/left", "1.0.0"))) == ["A-2"]


def test_rows_that_are_no_scores_are_left_out() -> None:
    """Numbers out of bounds, no numbers, other names and blank lines."""
    rows = b"cve,epss,percentile\nCVE-2020-0001,0.5,0.5\nCVE-2020-0002,7,0.5\nCVE-2020-0003,nan,0\n\nx,0.1,0.1\nCVE-2020-0004\n"
    epss = Epss(io.BytesIO(rows), "scores")
    assert list(epss) == [("CVE-2020-0001", 0.5, 0.5)]
    assert epss.skipped == 5


def test_scores_are_streamed(tmp_path: Path) -> None:
    """A long file is read line by line, so it never lies in memory whole."""

    class OneLine(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("read whole")

    rows = b"".join(b"CVE-2020-%06d,0.5,0.5\n" % number for number in range(1_000))
    assert len(list(Epss(OneLine(b"cve,epss,percentile\n" + rows), "scores"))) == 1_000
    (tmp_path / "epss.csv.gz").write_bytes(gzip.compress(b"cve,epss,percentile\n" + rows))
    assert update(tmp_path / "a.db", [str(tmp_path / "epss.csv.gz")]).epss == 1_000


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(vector=st.text(max_size=40) | st.from_regex(r"CVSS:3\.1(/(AV|AC|PR|UI|S|C|I|A):[NLHACPUR]){0,9}", fullmatch=True))
def test_any_vector_has_a_score_or_none(vector: str) -> None:
    """A score is between 0 and 10."""
    score = base_score(vector)
    assert score is None or 0 <= score <= 10
