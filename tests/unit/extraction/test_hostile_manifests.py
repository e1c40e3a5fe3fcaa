"""Manifests made to hurt: whatever is in them, reading ends soon, in little memory, and only with `ManifestProblem`."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.extraction.manifests import ManifestProblem, read_tree
from holdfast.extraction.manifests.requirements import read_requirements
from holdfast.extraction.manifests.source import BYTES_PER_FILE_MAX, Source
from holdfast.extraction.manifests.tree import LOCKS, NEED_A_LOCK, NEED_NONE
from holdfast.extraction.sbom import read_sbom
from tests.support.fuzzing import examples
from tests.support.inventories import FIXTURES, codes, write_files

SECONDS_MAX = 60
MIB_MAX = 400

READERS: dict[str, Callable[[Source, str], object]] = {
    **{name: lambda source, path, read=read: read(source, path, None) for name, (_, read) in LOCKS.items()},
    **{name: read for known in (NEED_A_LOCK, NEED_NONE) for name, (_, read) in known.items()},
    "requirements.txt": read_requirements,
}
SAMPLES = {
    place.name: place.read_bytes() for place in sorted(FIXTURES.rglob("*")) if place.name in READERS or place.name == "go.sum"
}
NAMES = sorted(READERS)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
words = st.one_of(
    st.sampled_from(["packages", "dependencies", "devDependencies", "requires", "node_modules/a", "name", "version", "link"]),
    st.sampled_from(["package", "source", "virtual", "editable", "dev-dependencies", "optional-dependencies", "resolved"]),
    st.sampled_from(["project", "tool", "poetry", "group", "workspace", "target", "dependency-groups", "extras", "optional"]),
)
nearly_right = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["a", "1.0", "npm:@1", "", ".", "a 1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.just("") | st.just("a"), inner, max_size=4),
    max_leaves=20,
)
quick = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def read_by(name: str, root: Path, data: bytes) -> None:
    write_files(root, {name: data, "go.sum": data})
    try:
        READERS[name](Source(root), name)
    except ManifestProblem as problem:
        assert problem.problem.manifest in (name, "pyproject.toml", "go.sum")
    read_tree(root)


def to_toml(value: object) -> str:
    """An inline value; not all of it is valid, which is part of the test."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {to_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value) if value is not None else "1979-05-27"


@pytest.mark.parametrize("name", NAMES)
@quick
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_noise_is_a_problem_and_never_a_crash(tmp_path: Path, name: str, data: bytes) -> None:
    """Any bytes in any manifest."""
    read_by(name, tmp_path, data)


@pytest.mark.parametrize("name", NAMES)
@quick
@given(data=st.data())
def test_a_damaged_sample_is_a_problem_and_never_a_crash(tmp_path: Path, name: str, data: st.DataObject) -> None:
    """A real manifest with a part cut out and something else put in."""
    sample = SAMPLES.get(name, b"")
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, min(len(sample), start + 40)))
    put_in = data.draw(st.sampled_from([b"", b"\xff", b"\0", b"{", b"]", b'"', b"\n", b"=", b"1" * 5000, b"${", b"<a>"]))
    read_by(name, tmp_path, sample[:start] + put_in + sample[end:])


@pytest.mark.parametrize("name", NAMES)
@quick
@given(value=st.dictionaries(words, nearly_right, max_size=4) | anything)
def test_wrong_types_in_the_right_places_are_a_problem_and_never_a_crash(tmp_path: Path, name: str, value: object) -> None:
    """Well-formed JSON and TOML of another shape than expected."""
    is_toml = name.endswith((".toml", ".lock"))
    if is_toml and isinstance(value, dict):
        text = "\n".join(f"{json.dumps(key)} = {to_toml(inner)}" for key, inner in value.items())
    else:
        text = json.dumps(value)
    read_by(name, tmp_path, text.encode())


@quick
@given(
    data=st.binary(max_size=100)
    | anything.map(lambda value: json.dumps({"bomFormat": "CycloneDX", "components": value}).encode())
)
def test_an_sbom_of_anything_is_a_problem_and_never_a_crash(data: bytes) -> None:
    """A tool's output is read with the same care."""
    try:
        read_sbom(data)
    except ManifestProblem:
        pass


MANY = 6_000
BOMBS: dict[str, tuple[str, str]] = {
    "deep JSON": ("package-lock.json", '{"packages": ' + "[" * 2_000_000),
    "deep version 1": ("package-lock.json", '{"dependencies": {"a": ' * 400 + "{}" + "}}" * 400),
    "long places": ("package-lock.json", json.dumps({"packages": {"node_modules/a/" * 1000 + str(n): {} for n in range(300)}})),
    "many packages": (
        "package-lock.json",
        json.dumps({"packages": {f"node_modules/{n}": {"version": "1"} for n in range(10 * MANY)}}),
    ),
    "names that are nowhere": (
        "package-lock.json",
        json.dumps(
            {
                "packages": {"/".join(["node_modules/a"] * depth): {} for depth in range(1, 30)}
                | {"node_modules/a/" * 30 + "node_modules/b": {"dependencies": {str(n): "" for n in range(10 * MANY)}}}
            }
        ),
    ),
    "empty lists": ("package.json", '{"dependencies": [' + "[]," * 300_000 + "[]]}"),
    "deep TOML": ("uv.lock", "a = " + "[" * 1_000_000),
    "long dotted key": ("pyproject.toml", "a" + ".a" * 20_000 + " = 1"),
    "many dotted keys": ("Cargo.lock", "\n".join(f"k{n}" + ".a" * 60 + " = 1" for n in range(20_000))),
    "a square of edges": (
        "uv.lock",
        '[[package]]\nname = "m"\nsource = { virtual = "." }\ndependencies = ['
        + '{ name = "a" },' * 3000
        + "]\n"
        + "\n".join(f'[[package]]\nname = "a"\nversion = "{n}"' for n in range(3000)),
    ),
    "deep marker": ("requirements.txt", "a; " + "(" * 2000 + "os_name == 'a'" + ")" * 2000),
    "many requirements": ("requirements.txt", "\n".join(f"a{n}==1" for n in range(MANY))),
    "one endless line": ("requirements.txt", "a" * 3_000_000 + " #" * 100_000),
    "continued for ever": ("requirements.txt", "a \\\n" * 500_000),
    "deep XML": ("pom.xml", "<a>" * 500_000),
    "wide XML": ("pom.xml", "<project>" + "<a/>" * 800_000 + "</project>"),
    "open braces": (
        "pom.xml",
        f"<project><dependencies><dependency><groupId>{'${' * 500_000}</groupId></dependency></dependencies></project>",
    ),
    "long numbers": ("go.sum", f"a v{'1' * 100_000}.0.0 h1:x\n" * 20),
    "many modules": ("go.mod", "require (\n" + "\n".join(f"a.b/{n} v1.0.0" for n in range(MANY)) + "\n)\n"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_manifest_made_to_hurt_ends_soon_and_in_little_memory(tmp_path: Path, bomb: str) -> None:
    """Time and memory have a bound that no content moves."""
    name, content = BOMBS[bomb]
    write_files(tmp_path, {name: content} | ({"go.mod": "require x.y/z v1.0.0\n"} if name == "go.sum" else {}))
    tracemalloc.start()
    began = time.process_time()
    try:
        read_tree(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < SECONDS_MAX
    assert peak < MIB_MAX * 1024**2


def test_a_file_that_is_too_large_is_not_even_opened_for_reading(tmp_path: Path) -> None:
    """A sparse file of a terabyte costs nothing."""
    with open(tmp_path / "package-lock.json", "wb") as file:
        file.truncate(1024**4)
    assert codes(read_tree(tmp_path)) == [("package-lock.json", "too_large")]


def test_all_manifests_together_have_a_limit(tmp_path: Path) -> None:
    """Many files of the allowed size are still too much."""
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        with open(folder / "package-lock.json", "wb") as file:
            file.truncate(BYTES_PER_FILE_MAX)
    assert [code for _, code in codes(read_tree(tmp_path))] == ["unreadable"] * 4 + ["too_large"] * 2
