"""`make mutants` on a small project: what is broken, which tests are run, what is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tools.mutants import load_equivalents, sampled
from tools.mutants_find import Mutant, python_mutants, sql_mutants

CODE = """\
from importlib.resources import files
import sqlite3


def price(cents: int, country: str) -> int:
    if cents < 0:
        raise ValueError(cents)
    return cents + (cents // 5 if country == "fr" else 0)


def names(connection: sqlite3.Connection, owner: str) -> list[str]:
    _, _, sql = files("shop").joinpath("shop.sql").read_text().partition("-- name: names_of\\n")
    return [name for (name,) in connection.execute(sql, [owner])]
"""
SQL = """\
-- name: names_of
SELECT name FROM things
WHERE owner = ? AND hidden = 0
"""
TESTS = """\
import sqlite3

import pytest

from shop import names, price


def test_nothing_costs_less_than_nothing():
    with pytest.raises(ValueError):
        price(-1, "fr")


def test_taxes():
    assert (price(1000, "fr"), price(1000, "us")) == (1200, 1000)


def test_names_of_the_owner():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE things (name, owner, hidden)")
    connection.executemany("INSERT INTO things VALUES (?, ?, 0)", [("pen", "ana"), ("cup", "ben")])
    assert names(connection, "ana") == ["pen"]


def test_that_fails_only_in_a_copy():
    assert __file__.startswith(FOLDER) and price(1, "us") == 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Below git, with tests that leave two changes unnoticed."""
    written = {
        "src/shop/__init__.py": CODE,
        "src/shop/shop.sql": SQL,
        "tests/test_shop.py": TESTS.replace("FOLDER", repr(str(tmp_path))),
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
        ".gitignore": "build/\n__pycache__/\n",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def tool(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.mutants", *arguments, "--root", str(project), "--parallel", "1"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a third of the time
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_survivors_are_reported_known_ones_kept_and_equivalents_left_out(project: Path) -> None:
    """The tree itself stays as it is; a second run only reports; a listed equivalent is not reported again."""
    assert tool(project, "run").returncode == 2  # no coverage yet
    collected = tool(project, "collect")
    assert collected.returncode == 0, collected.stdout + collected.stderr
    found = tool(project, "run")
    survivors = {line for line in found.stdout.splitlines() if line.startswith("survived")}
    assert survivors == {
        "survived  src/shop/__init__.py:6 comparison turned",
        "survived  src/shop/shop.sql:3 condition dropped",
    }, found.stdout + found.stderr
    assert "src/shop/shop.sql:3 (names_of): condition dropped\n  - AND hidden = 0\n  + (nothing)" in found.stdout
    assert found.returncode == 1 and found.stdout.splitlines()[-1] == "3 killed, 2 survived"
    assert subprocess.run(["git", "status", "--short"], cwd=project, capture_output=True, text=True).stdout.count("??") == 4
    assert (project / "src/shop/__init__.py").read_text() == CODE

    (project / "tools").mkdir()
    (project / "tools/mutants-equivalent.toml").write_text(
        '[[equivalent]]\npath = "src/shop/shop.sql"\nold = "AND hidden = 0"\nnew = ""\nreason = "Nothing is hidden yet."\n'
    )
    again = tool(project, "run").stdout
    assert "5 known or without tests, 0 to run" in again
    assert again.splitlines()[-1] == "1 equivalent, 3 killed, 1 survived" and "hidden" not in again


def changes(mutants: list[Mutant]) -> list[tuple[str, str]]:
    return [(" ".join(one.old.split()), " ".join(one.new.split())) for one in mutants]


def test_guards_of_python_are_broken_in_each_way() -> None:
    """A guard, each operand, a comparison, a not; not what only types need, and not inside of f-strings."""
    source = b"""
if typing.TYPE_CHECKING:
    import y
def f(a, b):
    if a and not (b or
                  c < 3):
        return None
    return f"{1 if a else 2}"
"""
    whole = "a and not (b or c < 3)"
    assert changes(python_mutants("a.py", source)) == [
        (whole, "False"),
        (whole, "not (b or c < 3)"),
        (whole, "a"),
        (whole, "a and (b or c < 3)"),
        (whole, "a and (not c < 3)"),
        (whole, "a and (not b)"),
        (whole, "a and (not (b or c <= 3))"),
    ]


def test_conditions_and_locks_of_sql_are_taken_away() -> None:
    """Not the AND of BETWEEN, not what is said in a comment or a text, and no part of an OR."""
    source = b"""
-- name: one
-- WHERE this AND that
UPDATE jobs SET n = 1 WHERE id = (SELECT id FROM jobs WHERE at BETWEEN 1 AND 2 AND name = 'x AND y'
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) AND (a = 1 OR b = 2 AND c = 3)
-- name: two
INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id
"""
    inner = "SELECT id FROM jobs WHERE at BETWEEN 1 AND 2 AND name = 'x AND y' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    found = sql_mutants("a.sql", source)
    assert sorted(changes(found)) == [
        ("AND (a = 1 OR b = 2 AND c = 3)", ""),
        ("AND name = 'x AND y'", ""),
        ("FOR UPDATE SKIP LOCKED", ""),
        ("ON CONFLICT (id) DO UPDATE SET n = excluded.n", ""),
        ("SKIP LOCKED", ""),
        ("at BETWEEN 1 AND 2 AND", ""),
        (f"id = ({inner}) AND", ""),
    ]
    assert {one.block for one in found} == {"one", "two"}


def test_a_sample_keeps_what_it_has_when_other_code_changes() -> None:
    """Results of unchanged files stay worth something; another seed takes others."""
    source = b"".join(b"if a%d < b:\n    c()\n" % n for n in range(40))
    before = python_mutants("a.py", source)
    after = [*before, *python_mutants("b.py", b"if x == y:\n    z()\n")]
    same = set(sampled(before, 1, 20)) & set(sampled(after, 1, 20))
    assert len(same) >= 19 and sampled(before, 1, 20) != sampled(before, 2, 20)


def test_every_mutant_of_our_own_python_compiles() -> None:
    """A change that is no Python would be killed by any test."""
    for path in sorted((ROOT / "src/holdfast/limits").glob("*.py")):
        source = path.read_bytes()
        for mutant in python_mutants(path.name, source):
            compile(mutant.applied_to(source), path, "exec")


def test_equivalents_name_what_is_there() -> None:
    """A listed change whose code is gone is taken off the list."""
    listed = load_equivalents(ROOT / "tools/mutants-equivalent.toml")
    there = set()
    for path in {path for path, _, _ in listed}:
        read = python_mutants if path.endswith(".py") else sql_mutants
        there |= {(path, *pair) for pair in changes(read(path, (ROOT / path).read_bytes()))}
    assert set(listed) - there == set()
