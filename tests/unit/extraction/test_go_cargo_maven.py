"""Go, Rust and Maven: go.mod with go.sum, Cargo.lock with Cargo.toml, and poms."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.extraction.manifests import read_tree
from tests.support.inventories import FIXTURES, codes, direct, edges, scopes, transitive, write_files


def test_go_mod_tells_direct_from_indirect() -> None:
    """`// indirect` marks what the module itself does not import."""
    inventory = read_tree(FIXTURES / "go-app")
    assert direct(inventory) == {"github.com/gin-gonic/gin@v1.7.0", "golang.org/x/text@v0.3.5"}
    assert transitive(inventory) == {"gopkg.in/yaml.v2@v2.2.8"}


GO_SUM = """\
github.com/BurntSushi/toml v1.0.0 h1:aaaa
github.com/BurntSushi/toml v1.0.0/go.mod h1:aaaa
golang.org/x/sys v0.0.0-20190412213103-97732733099d h1:bbbb
golang.org/x/sys v0.9.0 h1:bbbb
golang.org/x/sys v0.10.0-rc.1 h1:bbbb
golang.org/x/only v1.0.0/go.mod h1:cccc
"""


@pytest.mark.parametrize(
    ("language", "indirect"),
    [("go 1.16", {"golang.org/x/sys@v0.10.0-rc.1"}), ("", {"golang.org/x/sys@v0.10.0-rc.1"}), ("go 1.17", set())],
)
def test_go_sum_adds_what_an_old_go_mod_leaves_out(tmp_path: Path, language: str, indirect: set[str]) -> None:
    """Since Go 1.17 go.mod is complete, and go.sum would add versions that are not used."""
    files: dict[str, str | bytes] = {
        "go.mod": f"module example.test/app\n{language}\nrequire github.com/BurntSushi/toml v1.0.0\n",
        "go.sum": GO_SUM,
    }
    inventory = read_tree(write_files(tmp_path, files))
    assert direct(inventory) == {"github.com/BurntSushi/toml@v1.0.0"}
    assert transitive(inventory) == indirect


def test_go_replacements_are_what_is_built(tmp_path: Path) -> None:
    """A module that is replaced by a folder is no dependency any more."""
    content = """
module example.test/app
go 1.20
require (
	example.test/a v1.0.0
	example.test/b v1.0.0
	example.test/c v1.0.0 // a remark
)
exclude example.test/x v1.0.0
replace example.test/a v1.0.0 => example.test/fork v1.1.0
replace (
	example.test/b => ../b
)
"""
    assert direct(read_tree(write_files(tmp_path, {"go.mod": content}))) == {
        "example.test/fork@v1.1.0",
        "example.test/c@v1.0.0",
    }


def test_cargo_lock_leaves_the_application_out() -> None:
    """What the application needs is direct; the application is not its own dependency."""
    inventory = read_tree(FIXTURES / "rust-app")
    assert direct(inventory) == {"smallvec@1.6.0", "time@0.1.43"}
    assert transitive(inventory) == {"libc@0.2.80"}
    assert edges(inventory) == {"time@0.1.43": ["libc@0.2.80"]}


CARGO_WORKSPACE: dict[str, str | bytes] = {
    "Cargo.toml": '[workspace]\nmembers = ["one", "two"]\n',
    "one/Cargo.toml": """
[package]
name = "one"
[dependencies]
renamed = { package = "serde", version = "1" }
two = { path = "../two" }
extra = { version = "1", optional = true }
[dev-dependencies]
testing = "1"
""",
    "two/Cargo.toml": '[package]\nname = "two"\n[target."cfg(unix)".dependencies]\nlibc = "1"\n',
    "Cargo.lock": """
version = 4
[[package]]
name = "one"
version = "0.1.0"
dependencies = ["extra", "serde 1.0.0", "testing", "two"]
[[package]]
name = "two"
version = "0.1.0"
dependencies = ["libc"]
[[package]]
name = "extra"
version = "1.0.0"
source = "registry+https://index.example"
[[package]]
name = "libc"
version = "1.0.0"
source = "registry+https://index.example"
[[package]]
name = "serde"
version = "1.0.0"
source = "registry+https://index.example"
[[package]]
name = "serde"
version = "2.0.0"
source = "registry+https://index.example"
[[package]]
name = "testing"
version = "1.0.0"
source = "registry+https://index.example"
dependencies = ["serde 2.0.0 (registry+https://index.example)"]
""",
}


def test_cargo_workspace_takes_scopes_from_the_members(tmp_path: Path) -> None:
    """Renamed, optional and development dependencies are told apart, and versions kept apart."""
    inventory = read_tree(write_files(tmp_path, CARGO_WORKSPACE))
    assert direct(inventory) == {"serde@1.0.0", "extra@1.0.0", "testing@1.0.0", "libc@1.0.0"}
    assert scopes(inventory) == {
        "serde@1.0.0": "required",
        "serde@2.0.0": "dev",
        "extra@1.0.0": "optional",
        "testing@1.0.0": "dev",
        "libc@1.0.0": "required",
    }
    assert inventory.problems == []


def test_cargo_member_gets_its_own_part_of_the_lockfile_above(tmp_path: Path) -> None:
    """A package path inside a workspace does not lose its lockfile."""
    inventory = read_tree(write_files(tmp_path, CARGO_WORKSPACE), "two")
    assert direct(inventory) == {"libc@1.0.0"}
    assert (transitive(inventory), inventory.problems) == (set(), [])


def test_cargo_toml_alone_gives_direct_crates(tmp_path: Path) -> None:
    """Only `=` names one version."""
    content = '[dependencies]\na = "=1.0.0"\nb = "1.0.0"\nc = { path = "../c" }\n[build-dependencies]\nd = "1"\n'
    inventory = read_tree(write_files(tmp_path, {"Cargo.toml": content}))
    assert direct(inventory) == {"a@1.0.0", "b@", "d@"}
    assert inventory.without_lockfile == ["Cargo.toml"]


def test_a_pom_gives_its_direct_dependencies_and_says_so() -> None:
    """Properties are filled in, and test dependencies are for development."""
    inventory = read_tree(FIXTURES / "maven-app")
    assert scopes(inventory) == {
        "org.apache.logging.log4j:log4j-core@2.14.1": "required",
        "com.fasterxml.jackson.core:jackson-databind@2.9.10": "required",
        "junit:junit@4.12": "dev",
    }
    assert len(direct(inventory)) == 3
    assert codes(inventory) == [("pom.xml", "direct_only")]


def dependency(group: str, artifact: str, more: str = "") -> str:
    return f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>{more}</dependency>"


def test_a_pom_inherits_from_parents_in_the_repository(tmp_path: Path) -> None:
    """Versions and dependencies of the parent count; modules of the repository are no dependencies; unknown stays unknown."""
    parent = f"""
<project><groupId>g</groupId><artifactId>parent</artifactId><version>3</version>
<properties><v>1.5</v><w>${{v}}</w></properties>
<dependencies>{dependency("log", "api", "<version>[2.0]</version>")}</dependencies>
<dependencyManagement><dependencies>
{dependency("m", "managed", "<version>${w}</version><scope>provided</scope>")}
</dependencies></dependencyManagement></project>"""
    child = f"""
<project><parent><groupId>g</groupId><artifactId>parent</artifactId><version>3</version></parent><artifactId>child</artifactId>
<dependencies>
{dependency("m", "managed")}
{dependency("${project.groupId}", "other")}
{dependency("r", "range", "<version>[1,2)</version>")}
{dependency("u", "unknown", "<version>${nowhere}</version><optional>true</optional>")}
</dependencies></project>"""
    other = "<project><groupId>g</groupId><artifactId>other</artifactId></project>"
    write_files(tmp_path, {"pom.xml": parent, "child/pom.xml": child, "other/pom.xml": other})
    inventory = read_tree(tmp_path)
    found = {(one.manifest, f"{one.name}@{one.version}", one.scope) for one in inventory.components}
    assert found == {
        ("pom.xml", "log:api@2.0", "required"),
        ("child/pom.xml", "log:api@2.0", "required"),
        ("child/pom.xml", "m:managed@1.5", "optional"),
        ("child/pom.xml", "r:range@", "required"),
        ("child/pom.xml", "u:unknown@", "optional"),
    }
    assert ("child/pom.xml", "unpinned") in codes(inventory)


def test_a_pom_with_entities_is_refused(tmp_path: Path) -> None:
    """Entities could read files or grow without end; the message does not quote them."""
    bomb = '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><project>&b;</project>'
    inventory = read_tree(write_files(tmp_path, {"pom.xml": bomb}))
    assert inventory.components == []
    assert [problem.message for problem in inventory.problems] == ["has a document type, which could hide entities; remove it."]


def test_properties_that_feed_each_other_end(tmp_path: Path) -> None:
    """A property that doubles, or names itself, costs a version and nothing more."""
    doubling = "".join(f"<p{n}>${{p{n + 1}}}${{p{n + 1}}}</p{n}>" for n in range(40))
    content = f"""<project><properties>{doubling}<p40>xxxx</p40><self>${{self}}</self></properties><dependencies>
{dependency("a", "b", "<version>${p0}</version>")}
{dependency("c", "d", "<version>${self}</version>")}</dependencies></project>"""
    assert direct(read_tree(write_files(tmp_path, {"pom.xml": content}))) == {"a:b@", "c:d@"}
