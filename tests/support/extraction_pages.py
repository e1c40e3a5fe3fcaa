"""Two runs of a project that show everything which pages can show: new and gone, scanned and not, known and pending."""

from __future__ import annotations

from typing import Any

from holdfast.extraction.model import Component
from holdfast.pipeline import StepUnavailable
from tests.support.extractions import Staged, finding, secret, vulnerability

PACKAGES = (
    "express@4.16.0",
    "lodash@4.17.15",
    "minimist@1.2.0",
    "qs@6.5.1",
    "semver@7.3.2",
    "body-parser@1.18.2",
    "debug@2.6.9",
)
LICENSES = {"express": "MIT", "lodash": "MIT", "qs": "BSD-3-Clause", "semver": "ISC"}
NO_SEMGREP = "Static analysis skipped (Semgrep not installed)"


def packages(*named: str) -> list[Component]:
    return [
        Component(
            purl=f"pkg:npm/{one}",
            name=one.rpartition("@")[0],
            version=one.rpartition("@")[2],
            ecosystem="npm",
            direct=place < 2,
            manifest="package-lock.json",
        )
        for place, one in enumerate(named)
    ]


LODASH = "pkg:npm/lodash@4.17.15"
BEFORE: dict[str, Any] = {
    "dependencies": packages(*PACKAGES[:5], "left-pad@1.3.0"),
    "vulnerabilities": [
        vulnerability(
            "GHSA-35jh-r3h4-6jhm", LODASH, severity="high", fixed_in=["4.17.21"], summary="Command injection in lodash"
        ),
        vulnerability("GHSA-old", "pkg:npm/left-pad@1.3.0", severity="low", summary="Pads too much"),
    ],
    "findings": [finding("javascript.eval", path="src/index.js", line=12, message="eval of a request")],
    "secrets": [],
}
AFTER: dict[str, Any] = {
    "dependencies": packages(*PACKAGES),
    "vulnerabilities": [
        vulnerability(
            "GHSA-35jh-r3h4-6jhm",
            LODASH,
            aliases=["CVE-2021-23337"],
            severity="high",
            cvss_score=7.2,
            fixed_in=["4.17.21"],
            epss=0.0231,
            kev=False,
            summary="Command injection in lodash by the template function",
        ),
        vulnerability(
            "GHSA-xvch-5gv4-984h",
            "pkg:npm/minimist@1.2.0",
            aliases=["CVE-2021-44906"],
            severity="critical",
            cvss_score=9.8,
            fixed_in=["1.2.6"],
            epss=0.4,
            kev=True,
            summary="Prototype pollution in minimist",
        ),
        vulnerability("GHSA-semver", "pkg:npm/semver@7.3.2", severity="medium", summary="Slow regular expression"),
    ],
    "findings": StepUnavailable(NO_SEMGREP),
    "secrets": [
        secret("AWS Access Key", path="config/deploy.env", line=3),
        secret("Private Key", path="certs/old.pem", line=1),
    ],
}


async def registry(purls: Any) -> dict[str, dict[str, Any]]:
    """Knows some; the rest stays pending."""
    names = {purl: purl.rpartition("@")[0].rpartition("/")[2] for purl in purls}
    return {
        purl: {"licenses": [LICENSES[name]], "newest": name != "lodash", "deprecated": False}
        for purl, name in names.items()
        if name in LICENSES
    }


async def extracted_twice(staged: Staged, project: str = "shop") -> None:
    staged.laid = BEFORE
    await staged.connect(project)
    await staged.work()
    staged.laid = AFTER
    await staged.extraction.start("acme", project)
    await staged.work()
