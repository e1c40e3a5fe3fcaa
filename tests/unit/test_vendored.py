"""Files of others that are shipped: unchanged, and with their licences."""

from __future__ import annotations

import hashlib
import re

from tests.support.source import PACKAGE

VENDOR = PACKAGE / "web" / "dashboard" / "static" / "vendor"
OURS = {"SHA256SUMS", "README.md"}


def _sums() -> dict[str, str]:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def test_every_vendored_file_is_as_published() -> None:
    """Each file has the sum that was noted down when it was taken from its package, and none is unlisted."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.name not in OURS}
    assert found == _sums()


def test_every_vendored_file_has_its_version_and_licence_named() -> None:
    """The table says which package a file is from, and the licence it names stands beside it."""
    rows = [line for line in (VENDOR / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+\.(?:js|css|txt))`", row)}
    assert named == set(_sums())
    for row in rows:
        licence = re.search(r"`([^`]+\.LICENSE\.txt)`", row)
        assert licence and "Permission" in (VENDOR / licence[1]).read_text()
        assert re.search(r"\| \d+\.\d+\.\d+ \|", row)
