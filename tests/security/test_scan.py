"""`make scan`: what counts as found, what the list lets pass, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tools.scan import ALLOWED, Entry, Found, entries, findings, wrongs

STEPS: dict[str, Any] = {name: {"status": "ok", "message": ""} for name in ("cloning", "sbom", "trufflehog")}
KNOWN = Entry("docs/*", "Token", 1, "an example")


def test_the_list_can_be_read_and_says_why() -> None:
    """Every entry of ours; outside of tests and samples each says how often."""
    allowed = entries(ALLOWED.read_text(encoding="utf-8"))
    assert all(len(entry.why) > 10 for entry in allowed)
    assert all(entry.most < 10 for entry in allowed if not entry.path.startswith(("tests/", "src/holdfast/extraction/sample/")))


@pytest.mark.parametrize(
    "text", ['[[allowed]]\npath = "a"\nkind = "b"', '[[allowed]]\npath = "a"\nkind = "b"\nwhy = "c"\nx = 1']
)
def test_an_entry_that_says_too_little_or_something_else_is_refused(text: str) -> None:
    """A slip of the pen must not open the list."""
    with pytest.raises(ValueError, match="an entry has"):
        entries(text)


def test_all_kinds_of_results_count_and_what_was_not_scanned_is_no_finding() -> None:
    """Secrets, findings of rules, and vulnerabilities at each place of the package."""
    results = {
        "secrets": [{"path": "a", "kind": "Token"}],
        "findings": [{"path": "b", "rule": "eval"}],
        "vulnerabilities": [{"purl": "pkg:pypi/x@1", "id": "CVE-1"}],
        "dependencies": [{"purl": "pkg:pypi/x@1", "manifest": path} for path in "cd"],
    }
    assert findings(results) == [("a", "Token"), ("b", "eval"), ("c", "pkg:pypi/x@1 CVE-1"), ("d", "pkg:pypi/x@1 CVE-1")]
    assert findings({"secrets": None, "findings": None, "vulnerabilities": None}) == []


@pytest.mark.parametrize(
    ("found", "count"),
    [
        ([Found("docs/a.md", "Token")], 0),
        ([Found("docs/a.md", "Token"), Found("docs/b.md", "Token")], 1),
        ([Found("docs/a.md", "Token"), Found("src/a.py", "Token")], 1),
        ([Found("docs/a.md", "Token"), Found("docs/a.md", "Private Key")], 1),
        ([], 1),
    ],
)
def test_only_what_is_known_passes_and_no_more_often_than_it_is_known(found: list[Found], count: int) -> None:
    """One too many, another file, another kind, and an entry that nothing matches: each is told."""
    assert len(wrongs(found, [KNOWN], STEPS)) == count


def test_a_scan_that_did_not_happen_is_no_good_news() -> None:
    """Silence of a step that was not there is told as such."""
    missing = {**STEPS, "trufflehog": {"status": "unavailable", "message": "not installed"}}
    assert wrongs([Found("docs/a.md", "Token")], [KNOWN], missing) == ["the step trufflehog did not run: not installed"]
