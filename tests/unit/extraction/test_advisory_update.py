"""Bringing advisories in: from every kind of source, whole or not at all."""

from __future__ import annotations

import functools
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.extraction.advisories import SourceUnusable, UpdateRunning, status, update
from holdfast.extraction.advisories.builder import replacing
from holdfast.extraction.advisories.database import Database
from tests.support.advisories import EPSS, KEV, OSV, component, database, ids, match, osv

LODASH = component("npm/lodash", "4.17.20")


class Server(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/cut"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{")
        else:
            super().do_GET()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(tmp_path / "served"))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "advisories.db"


def zipped(file: Path) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for record in OSV.glob("*.json"):
            archive.write(record, record.name)
    return file


def test_a_file_of_one_record_a_folder_and_a_zip_can_be_brought_in(path: Path, tmp_path: Path) -> None:
    """Each fills the database by itself."""
    for source in (OSV / "GHSA-35jh-r3h4-6jhm.json", OSV, zipped(tmp_path / "all.zip")):
        update(path, [str(source)])
        assert ids(match(path, LODASH)) == ["GHSA-35jh-r3h4-6jhm"]


def test_an_address_can_be_brought_in(path: Path, tmp_path: Path, address: str) -> None:
    """Records and feeds, by http, whatever the address is called; its query is not kept."""
    zipped(tmp_path / "served" / "all")
    (tmp_path / "served" / "scores").write_bytes(EPSS.read_bytes())
    (tmp_path / "served" / "catalogue").write_bytes(KEV.read_bytes())
    found = update(path, [f"{address}/all?token=hush", f"{address}/scores", f"{address}/catalogue"])
    assert (found.advisories, found.withdrawn, found.epss, found.kev) == (10, 1, 7, 2)
    assert ids(match(path, LODASH)) == ["GHSA-35jh-r3h4-6jhm"]
    origin = status(path).advisories
    assert origin and origin.sources == [f"{address}/all"]
    assert b"hush" not in path.read_bytes()


@pytest.mark.parametrize("end", ["/none", "/cut"])
def test_an_address_that_fails_changes_nothing(path: Path, address: str, end: str) -> None:
    """A missing page and a cut connection are said plainly."""
    update(path, [str(OSV)])
    before = path.read_bytes()
    with pytest.raises(SourceUnusable, match=r"could not be fetched: (the server answered 404|the connection was cut)"):
        update(path, [address + end])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "source", ["ftp://host/x", "file:///etc/passwd", "http://user:hush@host/x", "http://[bad/x?hush", "nowhere"]
)
def test_a_source_of_another_kind_is_refused_without_its_secrets(path: Path, source: str) -> None:
    """Only http, https and paths; what may be a password is not repeated."""
    with pytest.raises(SourceUnusable) as refused:
        update(path, [source])
    assert "hush" not in str(refused.value)
    assert not path.exists()


def test_what_is_not_brought_stays(path: Path) -> None:
    """An update of the scores alone leaves the advisories, and the other way round."""
    update(path, [str(OSV), str(KEV)])
    version = status(path).advisories
    update(path, [str(EPSS)])
    assert status(path).advisories == version
    (found,) = match(path, LODASH).vulnerabilities
    assert (found.epss, found.kev) == (0.0084, False)


def test_new_advisories_replace_the_old_ones(path: Path, tmp_path: Path) -> None:
    """What the new source no longer has is gone."""
    update(path, [str(OSV)])
    assert ids(match(database(tmp_path, osv("A-1")), LODASH)) == []


def test_of_two_records_with_one_id_the_newer_counts(tmp_path: Path) -> None:
    """In whatever order they come, and also where the newer one is withdrawn."""
    old = osv("A-1", "npm/old", modified="2026-01-01T00:00:00Z")
    new = osv("A-1", "npm/new", modified="2026-02-01T00:00:00Z")
    gone = osv("B-1", "npm/new", modified="2026-02-01T00:00:00Z", withdrawn="2026-02-01T00:00:00Z")
    for records in ([old, new, osv("B-1", "npm/new"), gone], [new, old, gone, osv("B-1", "npm/new")]):
        path = database(tmp_path, *records)
        assert ids(match(path, component("npm/old", "1.0.0"), component("npm/new", "1.0.0"))) == ["A-1"]
        assert ids(match(path, component("npm/old", "1.0.0"))) == []


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_half(tmp_path: Path) -> None:
    """Readers that are open go on with what they opened; those that come during an update get the old file."""
    path = database(tmp_path, osv("A-1"))
    with closing(Database(path)) as open_before:
        with replacing(path):
            assert ids(match(path, component("npm/left", "1.0.0"))) == ["A-1"]
        assert open_before.advisory(open_before.affected("npm", "left")[0][0]).id == "A-1"
    update(path, [str(OSV)])
    assert ids(match(path, component("npm/left", "1.0.0"), LODASH)) == ["GHSA-35jh-r3h4-6jhm"]


def test_an_update_that_fails_leaves_the_file_and_nothing_else(path: Path, tmp_path: Path) -> None:
    """Whatever is wrong with the source, the database stays byte for byte, with no rest beside it."""
    update(path, [str(OSV)])
    before = path.read_bytes()
    good = zipped(tmp_path / "all.zip").read_bytes()
    bad = {
        "cut.zip": good[: len(good) // 2], "empty.zip": b"PK\x05\x06" + b"\0" * 18, "cut.csv.gz": EPSS.read_bytes()[:60],
        "other.csv": b"a,b,c\n1,2,3\n", "none.csv": b"cve,epss,percentile\n", "broken.json": b"{", "list.json": b"[1,",
        "kev.json": b'{"catalogVersion": "1", "vulnerabilities": []}', "nothing": b"",
    }  # fmt: skip
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceUnusable):
            update(path, [str(OSV), str(tmp_path / name)] if name.endswith(".zip") else [str(tmp_path / name)])
        assert path.read_bytes() == before, name
        assert not path.with_name("advisories.db.new").exists()


def test_a_second_update_at_the_same_time_is_refused(path: Path) -> None:
    """Two at once would lose what one of them brings."""
    with pytest.raises(UpdateRunning), replacing(path):
        update(path, [str(OSV)])
    update(path, [str(OSV)])


def test_a_damaged_database_is_repaired_by_an_update(path: Path) -> None:
    """The damage does not stand in the way of its own repair."""
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 500)
    update(path, [str(OSV)])
    assert status(path).usable


def test_the_version_goes_with_the_content(path: Path, tmp_path: Path) -> None:
    """The same records make the same version, in whatever package they come; a changed one makes another."""
    versions = []
    for source in (OSV, zipped(tmp_path / "all.zip"), OSV / "GO-2021-0113.json"):
        update(path, [str(source)])
        origin = status(path).advisories
        assert origin
        versions.append(origin.version)
    assert versions[0] == versions[1] != versions[2]


def test_a_list_of_records_in_one_file_is_read(path: Path, tmp_path: Path) -> None:
    """One that is no record is counted, and the others are used."""
    (tmp_path / "list.json").write_text(json.dumps([osv("A-1"), 5, osv("A-2")]), encoding="utf-8")
    found = update(path, [str(tmp_path / "list.json")])
    assert (found.advisories, found.skipped) == (2, {"not an OSV record": 1})
