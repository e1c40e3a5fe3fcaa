"""The matcher is right for every shape of advisory in every ecosystem that it claims."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.extraction.advisories import Matcher, update
from tools.beside_depscan import NAMES, cases


@pytest.mark.parametrize("ecosystem", sorted(NAMES))
def test_every_version_is_judged_as_its_place_in_the_order_says(tmp_path: Path, ecosystem: str) -> None:
    """Nine shapes against eleven versions, pre-releases among them; the comparison with dep-scan uses the same."""
    (tmp_path / "osv").mkdir()
    every = list(cases(ecosystem))
    for one in every:
        (tmp_path / "osv" / f"{one.record['id']}.json").write_text(json.dumps(one.record))
    update(tmp_path / "advisories.db", [str(tmp_path / "osv")])
    with Matcher(tmp_path / "advisories.db") as matcher:
        found = {one.purl for one in matcher.match([one.component for one in every]).vulnerabilities}
    assert found == {one.component.purl for one in every if one.affected}
    assert len(every) == 99 and 30 < len(found) < 60
