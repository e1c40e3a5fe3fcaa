"""Old packages of npm have capital letters, and `JSONStream` is another package than `jsonstream`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.extraction.manifests import read_tree
from holdfast.extraction.manifests.packages import identify_purl
from holdfast.extraction.sbom import read_sbom, write_sbom
from tests.support.advisories import database, ids, match, osv
from tests.support.inventories import write_files

LOCK = {
    "lockfileVersion": 3,
    "packages": {
        "": {"dependencies": {"JSONStream": "1", "jsonstream": "1"}},
        "node_modules/JSONStream": {"version": "1.3.5"},
        "node_modules/jsonstream": {"version": "1.3.5"},
    },
}


def test_two_names_that_differ_in_capitals_are_two_packages(tmp_path: Path) -> None:
    """In the lockfile, and in the bill of materials that is written from it and read again."""
    inventory = read_tree(write_files(tmp_path, {"package-lock.json": json.dumps(LOCK)}))
    again = read_sbom(write_sbom(inventory, name="shop"))
    for found in (inventory, again):
        assert sorted(one.name for one in found.components) == ["JSONStream", "jsonstream"]


@pytest.mark.parametrize("purl", ["pkg:npm/JSONStream@1.3.5", "pkg:npm/jsonstream@1.3.5"])
def test_an_advisory_holds_for_a_package_that_a_bill_of_materials_names(tmp_path: Path, purl: str) -> None:
    """Also where a tool has written the purl in lower case: its name beside it is as the registry has it."""
    bom = {"bomFormat": "CycloneDX", "components": [{"type": "library", "name": "JSONStream", "purl": purl}]}
    record = osv("A-1")
    record["affected"][0] = {
        "package": {"ecosystem": "npm", "name": "JSONStream"},
        "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
    }
    found = match(database(tmp_path, record), *read_sbom(json.dumps(bom).encode()).components)
    assert ids(found) == ["A-1"]


def test_a_purl_keeps_its_capitals_and_its_scope() -> None:
    """Percent-encoded or not."""
    for text in ("pkg:npm/%40Acme/JSONStream@1.0.0", "pkg:npm/@Acme/JSONStream@1.0.0"):
        found = identify_purl(text)
        assert found and (found.name, found.purl) == ("@Acme/JSONStream", "pkg:npm/%40Acme/JSONStream@1.0.0")
