"""`docs/security.md` names tests as proof: each of them is there, and each attack has one."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def functions_in(path: str) -> set[str]:
    """Functions that pytest would collect; one that is commented out, or only mentioned, is none."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"), path)
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def proofs(cell: str) -> list[tuple[str, str]]:
    """Test and file, of a cell such as `test_a`, `test_b` (`tests/x.py`); a test without a file has none."""
    found, waiting = [], list[str]()
    for name in re.findall(r"`(test_\w+|tests/[\w/]+\.py)`", cell):
        if name.startswith("test_"):
            waiting.append(name)
        else:
            found += [(test, name) for test in waiting]
            waiting = []
    return found + [(test, "") for test in waiting]


def test_every_test_that_the_page_names_exists_where_it_says() -> None:
    """A renamed test must not leave a promise without proof."""
    named = [proof for line in PAGE.splitlines() if line.startswith("|") for proof in proofs(line)]
    assert [(test, path) for test, path in named if not path or test not in functions_in(path)] == []
    assert len(named) == len(re.findall(r"`test_\w+`", PAGE)), "a test is named outside of the tables, where nobody looks"


def test_every_attack_and_every_layer_has_a_test() -> None:
    """Words alone are no guard: the last cell of each row names at least one."""
    for heading, cells, least in (("Who can reach what", 2, 8), ("Attack by attack", 3, 25)):
        table = rows(heading)
        assert len(table) >= least and {len(row) for row in table} == {cells}, heading
        assert [row[0] for row in table if not proofs(row[-1])] == [], heading
