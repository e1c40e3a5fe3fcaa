"""Which events the source writes, and where: found in the SQL and the Python, so that none can be forgotten.

An event is written by a statement that inserts into the table of events. Where its type stands in the statement, it is
read there. Where it is a parameter, the calls of that statement are followed: to a word in the call, to a parameter of the
function around it (then its callers are followed in turn), or else to the words of that module that look like one.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "holdfast"
INSERT = re.compile(r"INSERT INTO holdfast[._]events \(([^)]*)\)(.*?)(?:;|^-- name: |\Z)", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"(?!holdfast)[a-z]+[.:](?!sql$)[a-z_]+(\([a-z]+\))?")
Written = dict[str, set[str]]
"""Type of event -> the files that write it."""


class Teller(NamedTuple):
    """A function whose parameter becomes, alone or as a part of `template`, the type of an event."""

    name: str
    home: Path
    parameter: str
    place: int
    template: str


def events_of_source() -> Written:
    found: Written = defaultdict(set)
    statements: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.sql")):
        if "migrations" not in path.parts and path.name != "schema.sql":
            _read_sql(path, found, statements)
    _read_python(found, statements)
    return found


def _read_sql(path: Path, found: Written, statements: dict[str, int]) -> None:
    text = path.read_text(encoding="utf-8")
    for _, rest in INSERT.findall(text):
        for word in re.findall(r"'([^']*)'", rest):
            if WORD.fullmatch(word):
                found[word].add(_shown(path))
    for name, body in NAMED.findall(text):
        inserted = INSERT.search(body)
        if inserted:
            statements[name] = [column.strip() for column in inserted[1].split(",")].index("type")


@cache
def trees(package: Path) -> dict[Path, ast.Module]:
    """Every module of the package, read once."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}


def _read_python(found: Written, statements: dict[str, int]) -> None:
    calls = {path: (tree, list(_calls(tree)), _imported(tree)) for path, tree in trees(PACKAGE).items()}
    tellers: set[Teller] = set()
    for path, (tree, made, _) in calls.items():
        for function, call in made:
            first = call.args[0] if call.args else None
            if isinstance(first, ast.Constant) and first.value in statements:
                told = _argument(call, "type", statements[first.value] + 1)
                if told is not None:
                    _follow(path, tree, function, told, found, tellers)
    seen: set[Teller] = set()
    while tellers - seen:
        teller = min(tellers - seen)
        seen.add(teller)
        module = "holdfast." + teller.home.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        for path, (tree, made, imported) in calls.items():
            if path != teller.home and module not in imported:
                continue
            for function, call in made:
                told = _argument(call, teller.parameter, teller.place) if _called(call) == teller.name else None
                if told is not None:
                    _follow(path, tree, function, told, found, tellers, teller.template)


def _follow(
    path: Path,
    tree: ast.Module,
    function: ast.AST | None,
    told: ast.expr,
    found: Written,
    tellers: set[Teller],
    template: str = "{}",
) -> None:
    if isinstance(told, ast.IfExp):
        _follow(path, tree, function, told.body, found, tellers, template)
        _follow(path, tree, function, told.orelse, found, tellers, template)
        return
    if isinstance(told, ast.JoinedStr):
        template = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in told.values)
        told = next(part.value for part in told.values if isinstance(part, ast.FormattedValue))
    if isinstance(told, ast.Constant):
        found[template.format(told.value)].add(_shown(path))
        return
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(told, ast.Name):
        positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args) if one.arg != "self"]
        if told.id in (*positional, *(one.arg for one in function.args.kwonlyargs)):
            place = positional.index(told.id) if told.id in positional else 999
            tellers.add(Teller(function.name, path, told.id, place, template))
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WORD.fullmatch(node.value):
            found[node.value].add(_shown(path))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST | None, ast.Call]]:
    """Each call with the function around it."""

    def walk(node: ast.AST, around: ast.AST | None) -> Iterator[tuple[ast.AST | None, ast.Call]]:
        if isinstance(node, ast.Call):
            yield around, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else around
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    return walk(tree, None)


def _argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return named or (call.args[place] if place < len(call.args) else None)


def _called(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _imported(tree: ast.Module) -> set[str]:
    """The modules whose functions or classes it takes."""
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def _shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()
