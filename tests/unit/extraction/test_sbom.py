"""CycloneDX: what we write is valid and stable, and what cdxgen writes is read rightly."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from holdfast.extraction.manifests import ManifestProblem, read_tree
from holdfast.extraction.model import Component, Inventory
from holdfast.extraction.sbom import fingerprint, read_sbom, write_sbom
from tests.support.inventories import FIXTURES, direct, edges, scopes, transitive, unknown

SAMPLES = ["npm-app", "py-req", "py-poetry", "py-uv", "go-app", "rust-app", "maven-app", "monorepo", "empty-repo"]


def cdxgen(name: str) -> bytes:
    """The recorded output of cdxgen 12.8.4 for one of the samples."""
    return (FIXTURES / "cdxgen" / f"{name}.cdx.json").read_bytes()


def made_of(**parts: object) -> bytes:
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", **parts}).encode()


@pytest.mark.parametrize("name", SAMPLES)
def test_what_we_write_reads_back_the_same(name: str) -> None:
    """Components, scopes, edges, manifests and direct survive."""
    inventory = read_tree(FIXTURES / name)
    assert read_sbom(write_sbom(inventory, name=name)).components == inventory.components


def test_what_we_write_is_valid_cyclonedx() -> None:
    """The official schema of version 1.6 takes it."""
    written = write_sbom(read_tree(FIXTURES / "monorepo"), name="monorepo", version="abc123")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written.decode()) is None


def test_an_unknown_direct_stays_unknown_beside_known_ones() -> None:
    """A root with edges does not make the rest transitive."""
    lone = Component(purl="pkg:npm/a@1", name="a", version="1", ecosystem="npm", direct=None, depends_on=["pkg:npm/b@1"])
    known = Component(purl="pkg:npm/b@1", name="b", version="1", ecosystem="npm", direct=True, depends_on=["pkg:npm/a@1"])
    back = read_sbom(write_sbom(Inventory(components=[lone, known]), name="x"))
    assert (direct(back), unknown(back)) == ({"b@1"}, {"a@1"})


def test_two_writings_of_one_inventory_differ_in_the_time_alone() -> None:
    """So that a report is only new when something is new."""
    inventory = read_tree(FIXTURES / "py-uv")
    one, two = (json.loads(write_sbom(inventory, name="x")) for _ in range(2))
    one["metadata"].pop("timestamp")
    two["metadata"].pop("timestamp")
    assert one == two


# -- cdxgen ------------------------------------------------------------------------------------------------------------


def test_edges_of_the_root_are_direct() -> None:
    """npm: cdxgen wires its root, and marks what is for development."""
    inventory = read_sbom(cdxgen("npm-app"))
    assert direct(inventory) == {"lodash@4.17.20", "minimist@1.2.5", "mkdirp@0.5.5", "ms@2.1.2"}
    assert edges(inventory) == {"mkdirp@0.5.5": ["minimist@1.2.5"]}
    assert scopes(inventory)["ms@2.1.2"] == "dev"


def test_the_component_that_is_the_root_is_dropped() -> None:
    """Cargo: the application is listed among its own dependencies."""
    inventory = read_sbom(cdxgen("rust-app"))
    assert direct(inventory) == {"smallvec@1.6.0", "time@0.1.43"}
    assert transitive(inventory) == {"libc@0.2.80"}


def test_a_root_without_edges_leaves_the_answer_to_our_own_readers() -> None:
    """requirements.txt: without a checkout to read, nobody can tell."""
    names = {"flask@2.0.1", "requests@2.25.0", "pyyaml@5.3.1", "jinja2@2.11.2"}
    assert unknown(read_sbom(cdxgen("py-req"))) == names
    assert direct(read_sbom(cdxgen("py-req"), inventory=read_tree(FIXTURES / "py-req"))) == names


def test_in_a_monorepo_only_the_part_that_the_root_reaches_is_decided_by_it() -> None:
    """The Python packages hang nowhere, which does not make them transitive."""
    npm = {"lodash@4.17.20", "minimist@1.2.5", "mkdirp@0.5.5", "ms@2.1.2"}
    python = {"flask@2.0.1", "requests@2.25.0", "pyyaml@5.3.1", "jinja2@2.11.2"}
    alone = read_sbom(cdxgen("monorepo"))
    assert (direct(alone), unknown(alone)) == (npm, python)
    helped = read_sbom(cdxgen("monorepo"), inventory=read_tree(FIXTURES / "monorepo"))
    assert direct(helped) == npm | python


def test_inner_edges_without_a_root_do_not_make_packages_transitive() -> None:
    """poetry and uv: cdxgen writes edges between packages and none from the root."""
    parts = {
        "metadata": {"component": {"name": "x", "bom-ref": "pkg:pypi/x@latest", "purl": "pkg:pypi/x@latest"}},
        "components": [
            {"purl": "pkg:pypi/jinja2@2.11.2", "bom-ref": "j"},
            {"purl": "pkg:pypi/MarkupSafe@1.1.1", "bom-ref": "m"},
        ],
        "dependencies": [{"ref": "pkg:pypi/x@latest", "dependsOn": []}, {"ref": "j", "dependsOn": ["m", "gone"]}],
    }
    assert unknown(read_sbom(made_of(**parts))) == {"jinja2@2.11.2", "markupsafe@1.1.1"}
    helped = read_sbom(made_of(**parts), inventory=read_tree(FIXTURES / "py-poetry"))
    assert (direct(helped), transitive(helped)) == ({"jinja2@2.11.2"}, {"markupsafe@1.1.1"})
    assert edges(helped) == {"jinja2@2.11.2": ["markupsafe@1.1.1"]}
    assert {one.manifest for one in helped.components} == {"poetry.lock"}


@pytest.mark.parametrize("name", ["npm-app", "py-req", "rust-app", "monorepo", "empty-repo"])
def test_cdxgen_with_our_readers_beside_it_agrees_with_our_readers_alone(name: str) -> None:
    """The same repository has the same fingerprint, whichever tool is installed."""
    ours = read_tree(FIXTURES / name)
    theirs = read_sbom(cdxgen(name), checkout=FIXTURES / name, inventory=ours)
    assert theirs.components == ours.components
    assert fingerprint(theirs.components) == fingerprint(ours.components)


@pytest.mark.parametrize("around", ["{absolute}/", "{parents}/", "repo/", ""])
def test_paths_are_made_relative_to_the_repository(tmp_path: Path, around: str) -> None:
    """Wherever the checkout was, two runs compare equal; a folder of the repository with its name is left alone."""
    checkout = tmp_path / "scan" / "repo"
    (checkout / "repo").mkdir(parents=True)
    (checkout / "repo" / "go.mod").touch()
    (checkout / "package-lock.json").touch()
    before = around.format(absolute=checkout, parents=str(checkout).lstrip("/"))
    parts = [
        {"purl": "pkg:npm/a@1", "properties": [{"name": "SrcFile", "value": f"{before}package-lock.json"}]},
        {"purl": "pkg:golang/x.y/b@v1", "properties": [{"name": "SrcFile", "value": "repo/go.mod"}]},
        {"purl": "pkg:npm/c@1", "properties": [{"name": "SrcFile", "value": "../../" + "x" * 5000}]},
    ]
    found = {one.name: one.manifest for one in read_sbom(made_of(components=parts), checkout=checkout).components}
    assert found == {"a": "package-lock.json", "x.y/b": "repo/go.mod", "c": "x" * 5000}


def test_qualifiers_of_a_purl_do_not_make_another_package() -> None:
    """cdxgen writes `?type=jar`, and the readers do not."""
    purl = "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1?type=jar"
    (component,) = read_sbom(made_of(components=[{"purl": purl}])).components
    assert component.purl == "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"
    assert (component.name, component.ecosystem) == ("org.apache.logging.log4j:log4j-core", "Maven")


def test_components_without_a_usable_purl_are_counted() -> None:
    """Nothing is left out silently."""
    inventory = read_sbom(made_of(components=[{"name": "file.js"}, {"purl": "no purl"}, {"purl": "pkg:npm/a@1"}]))
    assert [problem.message for problem in inventory.problems] == ["2 components have no package URL; left out."]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"bomFormat": "SPDX"}', b'{"bomFormat": "CycloneDX", "components": 1}'])
def test_what_is_not_cyclonedx_is_refused(data: bytes) -> None:
    """An empty or foreign file is not an empty bill of materials."""
    with pytest.raises(ManifestProblem, match="is not CycloneDX JSON"):
        read_sbom(data)


# -- the fingerprint ---------------------------------------------------------------------------------------------------


def test_the_fingerprint_does_not_depend_on_order_time_or_serial_number() -> None:
    """Two runs of a tool over the same repository have the same one."""
    document = json.loads(cdxgen("npm-app"))
    document["serialNumber"] = "urn:uuid:00000000-0000-4000-8000-000000000000"
    document["metadata"]["timestamp"] = "2030-01-01T00:00:00Z"
    random.Random(1).shuffle(document["components"])
    document["dependencies"].reverse()
    again = read_sbom(json.dumps(document).encode())
    assert fingerprint(again.components) == fingerprint(read_sbom(cdxgen("npm-app")).components)
    assert fingerprint(reversed(again.components)) == fingerprint(again.components)


@pytest.mark.parametrize(
    "change", [{"purl": "pkg:npm/x@2"}, {"scope": "dev"}, {"direct": None}, {"manifest": "y"}, {"depends_on": ["pkg:npm/z@1"]}]
)
def test_the_fingerprint_sees_every_change(change: dict[str, object]) -> None:
    """A package, its scope, its directness, its manifest, its edges."""
    components = read_tree(FIXTURES / "npm-app").components
    changed = [msgspec.structs.replace(components[0], **change), *components[1:]]
    assert fingerprint(changed) != fingerprint(components)
