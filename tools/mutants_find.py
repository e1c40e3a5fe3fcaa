"""What can be broken: guards in Python, conditions and locks in SQL. Each mutant is one replacement in one file.

Python: a guard never fires, an operand of its condition is dropped, a comparison is turned, a `not` is taken away.
SQL: a condition of WHERE or IF is dropped, FOR UPDATE, SKIP LOCKED or ON CONFLICT is taken away.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class Mutant(NamedTuple):
    path: str
    """From the root."""
    lines: tuple[int, int]
    start: int
    """Bytes into the file, as `end`."""
    end: int
    old: str
    new: str
    kind: str
    block: str
    """In SQL the name of the statement or function."""
    digest: str
    """Of the whole file: a result holds for the text that it was found for."""

    @property
    def id(self) -> str:
        told = f"{self.path}\0{self.digest}\0{self.start}\0{self.end}\0{self.new}"
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def find(root: Path, package: str = "src") -> list[Mutant]:
    """All of a tree, in the order of files and lines."""
    found: list[Mutant] = []
    for path in sorted((root / package).rglob("*")):
        if path.suffix == ".py":
            found += python_mutants(path.relative_to(root).as_posix(), path.read_bytes())
        elif path.suffix == ".sql" and path.name != "schema.sql" and path.parent.name != "migrations":
            found += sql_mutants(path.relative_to(root).as_posix(), path.read_bytes())
    return found


# -- Python ------------------------------------------------------------------------------------------------------------


def python_mutants(path: str, source: bytes) -> list[Mutant]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    digest = hashlib.sha256(source).hexdigest()
    found = []
    for node, kind, new in _changed_conditions(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        lines = (node.lineno, node.end_lineno or node.lineno)
        found.append(Mutant(path, lines, start, end, source[start:end].decode(), new, kind, "", digest))
    return found


def _changed_conditions(tree: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
    for node in _nodes(tree):
        conditions = _conditions_of(node)
        if isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES):
            yield node.test, "guard never fires", "False"
        for condition in conditions:
            for kind, changed in _changes(condition):
                yield condition, kind, ast.unparse(changed)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Not into f-strings, whose parts have no places of their own before Python 3.12, and not what types alone need."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child)


def _conditions_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return list(node.ifs)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.BoolOp):
        return [node.value]
    return []


def _changes(condition: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Copies of a condition, each with one change."""
    for place, node in enumerate(ast.walk(condition)):
        if isinstance(node, ast.BoolOp):
            for n in range(len(node.values)):
                rest = [value for m, value in enumerate(node.values) if m != n]
                yield "operand dropped", _with(condition, place, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
            turned = TURNED[type(node.ops[0])]()
            yield "comparison turned", _with(condition, place, ast.Compare(node.left, [turned], node.comparators))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "not taken away", _with(condition, place, node.operand)


def _with(condition: ast.expr, place: int, new: ast.expr) -> ast.expr:
    if place == 0:
        return new
    copied = copy.deepcopy(condition)
    old = list(ast.walk(copied))[place]

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else super().generic_visit(node)

    Exchange().visit(copied)
    return copied


# -- SQL ---------------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"^-- name: (\w+)\s*$|^CREATE OR REPLACE FUNCTION \w+\.(\w+)", re.MULTILINE)
_HIDDEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_LOCK = re.compile(r"\s+FOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?\b", re.IGNORECASE)
_SKIP = re.compile(r" SKIP LOCKED\b", re.IGNORECASE)
_CONFLICT = re.compile(r"\s+ON CONFLICT\b", re.IGNORECASE)
_WORD = re.compile(
    r"\(|\)|;|,|\$\$|\b(?:WHERE|IF|ELSIF|AND|OR|BETWEEN|CASE|END|ORDER|GROUP|HAVING|RETURNING|LIMIT|OFFSET|FOR|UNION|EXCEPT|INTERSECT"
    r"|WINDOW|THEN|LOOP|ELSE|WHEN|ON|DO|JOIN|LEFT|CROSS|INNER|SELECT|UPDATE|INSERT|DELETE)\b",
    re.IGNORECASE,
)


def sql_mutants(path: str, source: bytes) -> list[Mutant]:
    text, digest = source.decode(), hashlib.sha256(source).hexdigest()
    masked = _HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", " " if hidden[0].startswith("-") else "_", hidden[0]), text)
    blocks = list(_BLOCK.finditer(text))
    found = []
    for n, block in enumerate(blocks):
        begin, end = block.end(), blocks[n + 1].start() if n + 1 < len(blocks) else len(text)
        for start, stop, new, kind in _sql_changes(masked, begin, end):
            lines = (text.count("\n", 0, start) + 1, text.count("\n", 0, stop) + 1)
            at = (len(text[:start].encode()), len(text[:stop].encode()))
            found.append(Mutant(path, lines, *at, text[start:stop], new, kind, block[1] or block[2], digest))
    return found


def _sql_changes(masked: str, begin: int, end: int) -> Iterator[tuple[int, int, str, str]]:
    for chain in _chains(masked, begin, end):
        if len(chain) == 1:
            yield *chain[0], " true", "condition dropped"
            continue
        for n, (start, stop) in enumerate(chain):
            if n == 0:
                yield start, chain[1][0], " ", "condition dropped"
            else:
                yield chain[n - 1][1], stop, " ", "condition dropped"
    for kind, pattern in (("lock taken away", _LOCK), ("SKIP LOCKED taken away", _SKIP)):
        for found in pattern.finditer(masked, begin, end):
            yield found.start(), found.end(), "", kind
    for found in _CONFLICT.finditer(masked, begin, end):
        yield found.start(), _end_of_clause(masked, found.end(), end), "", "ON CONFLICT taken away"


class _Frame(NamedTuple):
    """What is open within one pair of parentheses: a WHERE or an IF with its conditions, each from where to where."""

    chain: list[tuple[int, int]]
    head: list[str]


def _chains(masked: str, begin: int, end: int) -> Iterator[list[tuple[int, int]]]:
    """The conditions that AND joins, of each WHERE and of each IF with several. Those with OR are left alone."""
    stack: list[_Frame] = [_Frame([], [])]
    opened: dict[int, int] = {}
    skip_and = False
    for found in _WORD.finditer(masked, begin, end):
        word, frame = found[0].upper(), stack[-1]
        if word == "(":
            stack.append(_Frame([], []))
        elif word in ("WHERE", "IF", "ELSIF"):
            yield from _closed(stack[-1], opened, found.start())
            frame.head[:] = [word]
            opened[id(frame)] = found.end()
        elif word == "BETWEEN":
            skip_and = True
        elif word == "AND" and skip_and:
            skip_and = False
        elif word == "AND":
            if frame.head:
                frame.chain.append((opened[id(frame)], _trimmed(masked, found.start())))
                opened[id(frame)] = found.end()
        elif word in ("OR", "CASE"):
            frame.head.clear()
            frame.chain.clear()
        else:
            yield from _closed(frame, opened, found.start())
            if word == ")" and len(stack) > 1:
                stack.pop()
    while stack:
        yield from _closed(stack.pop(), opened, len(masked[:end].rstrip()))


def _closed(frame: _Frame, opened: dict[int, int], at: int) -> Iterator[list[tuple[int, int]]]:
    if frame.head:
        chain = [*frame.chain, (opened[id(frame)], at)]
        if len(chain) > 1 or frame.head == ["WHERE"]:
            yield chain
    frame.head.clear()
    frame.chain.clear()


def _trimmed(masked: str, at: int) -> int:
    while masked[at - 1].isspace():
        at -= 1
    return at


def _end_of_clause(masked: str, at: int, end: int) -> int:
    depth = 0
    for found in re.finditer(r"\(|\)|;|\$\$|\bRETURNING\b", masked[at:end], re.IGNORECASE):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth < 0 or (depth == 0 and found[0] not in "()"):
            return _trimmed(masked, at + found.start())
    return _trimmed(masked, end)
