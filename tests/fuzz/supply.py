"""What extraction reads: manifests of strangers, bills of materials, advisories, feeds, versions, reports, addresses."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import InvalidOption
from holdfast.extraction.advisories.errors import NotComparable, SourceUnusable
from holdfast.extraction.advisories.feeds import Epss, read_kev
from holdfast.extraction.advisories.ranges import judge
from holdfast.extraction.advisories.records import BadRecord, read_record
from holdfast.extraction.advisories.versions import COVERED, fold_name, fold_version, parse
from holdfast.extraction.context import Project
from holdfast.extraction.manifests import ManifestProblem, read_tree
from holdfast.extraction.manifests.packages import ECOSYSTEMS, identify, identify_purl
from holdfast.extraction.manifests.requirements import read_requirements
from holdfast.extraction.manifests.source import Source
from holdfast.extraction.manifests.tree import LOCKS, NEED_A_LOCK, NEED_NONE, LockReader
from holdfast.extraction.model import Component
from holdfast.extraction.repositories import _check, check_for_strangers
from holdfast.extraction.sbom import fingerprint, read_sbom, write_sbom
from holdfast.extraction.steps import cloning, depscan, secret_tools, semgrep
from holdfast.extraction.steps.reading import parse_report
from holdfast.pipeline import StepFailed
from tests.fuzz.reader import FIXTURES, SECRET, Reader, Scratch, check_storable, chosen, parts_of, samples, text_of


def _alone(read: LockReader) -> Callable[[Source, str], object]:
    return lambda source, path: read(source, path, None)


MANIFESTS: dict[str, Callable[[Source, str], object]] = {
    **{name: _alone(read) for name, (_, read) in LOCKS.items()},
    **{name: read for known in (NEED_A_LOCK, NEED_NONE) for name, (_, read) in known.items()},
    "requirements.txt": read_requirements,
}
COMPONENTS_MAX = 60_000


def check_components(components: list[Component]) -> None:
    """Storable, and the purl alone still names the package that advisories are looked up for."""
    assert len(components) <= COMPONENTS_MAX
    for one in components:
        check_storable(msgspec.to_builtins(one))
        identity = identify_purl(one.purl)
        assert identity is not None, one.purl
        assert identity.purl == one.purl, "a purl that is written another way when it is read again"
        assert (identity.version, identity.ecosystem) == (one.version, one.ecosystem)
        assert fold_name(one.ecosystem, identity.name) == fold_name(one.ecosystem, one.name), "the purl names another package"


def _manifest(name: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with Scratch.holding(name, data) as root:
            try:
                MANIFESTS[name](Source(root), name)
            except ManifestProblem as problem:
                check_storable(msgspec.to_builtins(problem.problem))
            inventory = read_tree(root)
        check_components(inventory.components)
        check_storable(msgspec.to_builtins(inventory.problems))
        again = read_sbom(write_sbom(inventory, name="x")).components
        assert {one.purl for one in again} == {one.purl for one in inventory.components}
        assert {one.name for one in again} == {one.name for one in inventory.components}

    return read


def _sbom(data: bytes) -> None:
    """Written and read again it is the same."""
    try:
        inventory = read_sbom(data)
    except ManifestProblem:
        return
    check_components(inventory.components)
    again = read_sbom(write_sbom(inventory, name="x")).components
    assert {one.purl for one in again} == {one.purl for one in inventory.components}
    fingerprint(again)


VERSIONS = ("1.2.3", "0", "2.0.0-rc.1+x", "1.0.post1", "v0.0.0-2020", "")


def _advisory(data: bytes) -> None:
    try:
        record = read_record(data)
    except BadRecord:
        return
    check_storable(msgspec.to_builtins(record, builtin_types=(type(record.modified),)))
    for ecosystem, _, affected in record.affected:
        for version in VERSIONS:
            try:
                verdict = judge(affected, ecosystem, version)
            except NotComparable:
                continue
            assert verdict.affected or not verdict.fixed_in


def _epss(data: bytes) -> None:
    feed = Epss(io.BytesIO(data), "feed")
    try:
        for cve, score, percentile in feed:
            assert cve.startswith("CVE-") and 0 <= score <= 1 and 0 <= percentile <= 1
    except SourceUnusable:
        pass
    check_storable(feed.version)


def _kev(data: bytes) -> None:
    try:
        found = read_kev(data, "catalogue")
    except SourceUnusable:
        return
    if found is not None:
        check_storable([found.version, found.cves])
        assert found.cves and found.skipped >= 0


def _versions(data: bytes) -> None:
    """A total order: of any three, whichever way they are compared."""
    first, *rest = parts_of(data, 4)
    ecosystem = chosen(first, sorted(COVERED))
    known = {}
    for text in map(text_of, rest):
        fold_version(ecosystem, text)
        try:
            known[text] = parse(ecosystem, text)
        except NotComparable:
            continue
    for (one, a), (other, b) in itertools.product(known.items(), repeat=2):
        assert (a < b) + (b < a) + (a == b) == 1, "not one of three"
        assert (a <= b) == (a < b or a == b) and (a >= b) == (b <= a)
        if fold_version(ecosystem, one) == fold_version(ecosystem, other):
            assert a == b, "folded into one, and yet different"
    if ecosystem == "Maven":
        return  # Maven's own order runs in circles around words behind doubled hyphens and dots, and ours is Maven's
    for a, b, c in itertools.permutations(known.values(), 3):
        assert not (a <= b and b <= c) or a <= c, "not transitive"


KINDS = [*ECOSYSTEMS, "swift", "generic", "huggingface", "mlflow", "cpan"]


def _purl(data: bytes) -> None:
    kind, name, version, whole = map(text_of, parts_of(data, 4))
    for identity in (identify(chosen(kind.encode(errors="replace"), KINDS), name, version), identify_purl(whole)):
        if identity is not None:
            check_components(
                [Component(purl=identity.purl, name=identity.name, version=identity.version, ecosystem=identity.ecosystem)]
            )


def _address(data: bytes) -> None:
    """A repository that a stranger may name has an https address of a public host, and no login in it."""
    source, branch, path = map(text_of, parts_of(data, 3))
    given = Project(id="", source=source, branch=branch or None, path=path)
    try:
        check_for_strangers(given, ())
        _check("acme", "shop", given)
    except InvalidOption as error:
        assert SECRET not in str(error)
        return
    parts = urlsplit(source)
    assert parts.scheme == "https" and parts.hostname and parts.username is None and parts.password is None
    assert source.isprintable() and not source.startswith("-") and " " not in parts.netloc


def _git_says(data: bytes) -> None:
    """Whatever git prints is told in words of ours or not at all, soon, however often it says so."""
    text = text_of(data)
    for shown in (text, (text + "\n") * (20_000 // (len(text) + 1))):
        for failure in cloning.FAILURES:
            failure.match(None, 128, [shown])


CHECKOUT = Path("/nowhere/checkout")


def _report(shape: Any, read: Callable[[Any], Any]) -> Callable[[bytes], None]:
    def checked(data: bytes) -> None:
        report = parse_report(data, shape)
        if report is not None:
            try:
                check_storable(msgspec.to_builtins(read(report)))
            except StepFailed as failed:
                check_storable(str(failed))

    return checked


def _semgrep(report: semgrep.Report) -> Any:
    found = semgrep.findings_of(report, CHECKOUT), semgrep.reasons_of(report, CHECKOUT)
    semgrep.check(report)
    return found


def _trufflehog(data: bytes) -> None:
    found = secret_tools.read_trufflehog(data.decode("utf-8", "replace"), CHECKOUT)
    check_storable(msgspec.to_builtins(found))


HOG = b'{"SourceMetadata":{"Data":{"Git":{"commit":"abc","file":"a.py","line":3}}},"DetectorName":"AWS","Raw":"x"}'
PURLS = (b"npm\nJSONStream\n1.0.0\npkg:npm/%40Angular/Core@1.0.0", b"maven\norg.a:b\n1\npkg:golang/github.com/A/b@v1#sub")
LOCK = b"""{"lockfileVersion": 3, "packages": {"": {"dependencies": {"JSONStream": "1"}},
"node_modules/JSONStream": {"version": "1.3.5"}}}"""
VDR = b"""{"vulnerabilities": [{"id": "CVE-2021-44906", "bom-ref": "CVE-2021-44906/pkg:npm/minimist@1.2.5",
"affects": [{"ref": "pkg:npm/minimist@1.2.5"}], "description": "Pollution", "properties": [{"name": "depscan:insights",
"value": "Reachable"}], "ratings": [{"severity": "critical", "score": 9.8, "vector": "CVSS:3.1/AV:N"}]}]}"""
NAMED = {name: samples(f"*/{name}", f"*/*/*/{name}", f"*/*/{name}") or (LOCK,) for name in MANIFESTS}
OSV_WORDS = (
    '"affected"',
    '"ranges"',
    '"events"',
    '"introduced"',
    '"last_affected"',
    '"SEMVER"',
    '"ECOSYSTEM"',
    '"PyPI"',
    '"Maven"',
)
JSON_WORDS = ('"packages"', '"dependencies"', '"node_modules/a"', '"version"', '"link"', '"resolved"', '"name"', "[[package]]")

SUPPLY = [
    *(Reader(name, _manifest(name), NAMED[name], JSON_WORDS, 6_000) for name in sorted(MANIFESTS)),
    Reader(
        "sbom", _sbom, samples("cdxgen/*.json")[:3], ('"purl"', '"bom-ref"', '"dependsOn"', "pkg:npm/", '"components"'), 6_000
    ),
    Reader("advisory", _advisory, samples("osv/*.json"), OSV_WORDS, 4_000),
    Reader("epss", _epss, samples("feeds/*.csv"), ("CVE-2021-1234", "cve,epss,percentile")),
    Reader("kev", _kev, samples("feeds/*.json"), ('"catalogVersion"', '"vulnerabilities"', '"cveID"')),
    Reader(
        "versions",
        _versions,
        tuple(f"{e}\n1.0-rc1\n1.0.0\n2-x".encode() for e in sorted(COVERED)),
        ("rc", "-", ".", "SNAPSHOT", "final"),
        80,
    ),
    Reader("purl", _purl, PURLS, ("pkg:npm/", "%40", "pkg:pypi/", "@", "?", "#"), 300),
    Reader(
        "address",
        _address,
        (b"https://github.com/acme/shop\nmain\nweb", b"https://[::1]:443/x", b"https://u:p@h/"),
        ("https://", "@", "[", ":443"),
    ),
    Reader(
        "git-says",
        _git_says,
        tuple((FIXTURES / "git-clone-errors.tsv").read_bytes().splitlines()[1:]),
        ("fatal: ", "error: unable to write file ", "remote: "),
    ),
    Reader(
        "semgrep",
        _report(semgrep.Report, _semgrep),
        samples("tools/semgrep*.json"),
        ('"results"', '"errors"', '"level"', '"cwe"'),
        4_000,
    ),
    Reader("trufflehog", _trufflehog, (HOG, b"log\n" + HOG), ('"line"', '"Verified"', '"commit"', "\\u0000")),
    Reader(
        "kingfisher",
        _report(secret_tools.Kingfisher, lambda r: secret_tools.read_kingfisher(r, CHECKOUT)),
        samples("tools/kingfisher*.json"),
        ('"git_metadata"', '"commit"', '"id"'),
        4_000,
    ),
    Reader(
        "detect-secrets",
        _report(secret_tools.DetectSecrets, lambda r: secret_tools.read_detect_secrets(r, CHECKOUT, CHECKOUT)),
        samples("tools/detect-secrets*.json"),
        ('"results"', '"type"', '"line_number"'),
        4_000,
    ),
    Reader(
        "depscan",
        _report(depscan._Vdr, depscan.read_vdr),
        (VDR,),
        ('"vulnerabilities"', '"ratings"', '"affects"'),
        4_000,
    ),
]
