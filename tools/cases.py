"""Which production cases of tests/cases.toml have a test, and which have none.

A test names what it proves with `@pytest.mark.case("L4")`, or several numbers at once. A number that is not in the list
is an error; a case without a test is only listed.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Group(NamedTuple):
    title: str
    cases: dict[str, str]


class Mark(NamedTuple):
    number: str
    where: str


def load_groups(path: Path) -> list[Group]:
    groups = [Group(table.pop("title"), table) for table in tomllib.loads(path.read_text(encoding="utf-8")).values()]
    numbers = [number for group in groups for number in group.cases]
    twice = {number for number in numbers if numbers.count(number) > 1}
    if twice:
        raise SystemExit(f"{path.name}: {', '.join(sorted(twice))} is there twice; give each case its own number")
    return groups


def find_marks(tests: Path) -> Iterator[Mark]:
    for path in sorted(tests.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.case"):
                where = f"{path.relative_to(tests.parent)}:{node.lineno}"
                yield from (Mark(_number_in(argument, where), where) for argument in node.args)


def _number_in(argument: ast.expr, where: str) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise SystemExit(f'{where}: write the case number as plain text, such as case("L4")')


def report(groups: list[Group], proven: set[str]) -> str:
    lines = []
    for group in groups:
        missing = {number: what for number, what in group.cases.items() if number not in proven}
        tested = [number for number in group.cases if number in proven]
        lines.append(
            f"{group.title}: {len(tested)} of {len(group.cases)} have a test" + (f": {' '.join(tested)}" if tested else "")
        )
        lines += [f"  {number:<12} no test: {what}" for number, what in missing.items()]
    total = sum(len(group.cases) for group in groups)
    lines.append(f"cases: {len(proven)} of {total} have a test")
    return "\n".join(lines)


def main(root: Path = ROOT) -> int:
    groups = load_groups(root / "tests" / "cases.toml")
    known = {number for group in groups for number in group.cases}
    marks = list(find_marks(root / "tests"))
    print(report(groups, known & {mark.number for mark in marks}))
    unknown = [mark for mark in marks if mark.number not in known]
    for mark in unknown:
        print(f"{mark.where}: case {mark.number} is not in tests/cases.toml; correct it or add the case", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
