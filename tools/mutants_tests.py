"""Which tests run a mutant: by coverage for Python; for SQL by the lines of Python that name the statement."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import coverage
from coverage.numbits import num_in_numbits

from tools.mutants_find import Mutant

_BLOCK = re.compile(r"^-- name: (\w+)\s*$|^CREATE OR REPLACE FUNCTION \w+\.(\w+)", re.MULTILINE)
_WORD = re.compile(r"\w+")
STORES = ("sqlite", "postgres")


def combine(folder: Path, root: Path, package: str) -> None:
    """What the processes of a run left, added to what there was: one part of the tests can be noted anew."""
    data = coverage.CoverageData(basename=str(folder / "lines"))
    data.read()
    seconds = _read(folder / "seconds.json")
    for path in sorted(folder.glob("coverage.*")):
        part = coverage.CoverageData(basename=str(path))
        part.read()
        data.update(part)
        path.unlink()
    for path in sorted(folder.glob("seconds-*.json")):
        seconds |= _read(path)
        path.unlink()
    data.write()
    (folder / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
    (folder / "sources.json").write_text(json.dumps(digests(root, package)), encoding="utf-8")


def digests(root: Path, package: str) -> dict[str, str]:
    paths = (path for path in (root / package).rglob("*.py"))
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _read(path: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


class Covering:
    def __init__(self, root: Path, package: str, folder: Path) -> None:
        self._root, self._package = root, package
        self._lines = sqlite3.connect(f"file:{folder / 'lines'}?mode=ro", uri=True)
        self._bits = functools.lru_cache(maxsize=64)(self._read_bits)
        self.seconds = _read(folder / "seconds.json")
        self._breadth = dict(self._lines.execute("SELECT context_id, count(*) FROM line_bits GROUP BY context_id"))
        self._names = dict(self._lines.execute("SELECT id, context FROM context"))
        self._files = {Path(path).resolve(): no for no, path in self._lines.execute("SELECT id, path FROM file")}
        noted: dict[str, str] = json.loads((folder / "sources.json").read_text(encoding="utf-8"))
        self.changed = sorted(path for path, digest in digests(root, package).items() if noted.get(path) != digest)
        """Files that are no longer as they were when their coverage was noted."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Those that tell most first: a test that runs few other files, and a quick one."""
        if mutant.path.endswith(".py"):
            places: Iterable[tuple[str, int, int]] = [(mutant.path, *mutant.lines)]
        else:
            places = self._callers.get(mutant.block, [])
        contexts = {context for place in places for context in self._contexts(*place)}
        other = [store for store in STORES if store not in Path(mutant.path).parts]
        skip = other[0] if len(other) == 1 else None
        names = {name: self._breadth[context] for context in contexts if (name := self._names[context]) in self.seconds}
        found = sorted(names, key=lambda name: (names[name], self.seconds[name], name))
        return [name for name in found if skip is None or skip not in name.partition("[")[2]]

    def _read_bits(self, path: str) -> list[tuple[int, bytes]]:
        file = self._files.get((self._root / path).resolve())
        return self._lines.execute("SELECT context_id, numbits FROM line_bits WHERE file_id = ?", [file]).fetchall()

    def _contexts(self, path: str, first: int, last: int) -> set[int]:
        lines = range(first, last + 1)
        return {context for context, bits in self._bits(path) if any(num_in_numbits(line, bits) for line in lines)}

    @functools.cached_property
    def _callers(self) -> dict[str, list[tuple[str, int, int]]]:
        """Statement or function -> the lines of Python that name it, directly or by what calls it."""
        texts = self._blocks()
        named: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for path in sorted((self._root / self._package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    place = (path.relative_to(self._root).as_posix(), node.lineno, node.end_lineno or node.lineno)
                    for word in set(_WORD.findall(node.value)) & texts.keys():
                        named[word].append(place)
        words = {name: set(_WORD.findall(text)) & texts.keys() - {name} for name, text in texts.items()}
        callers = {name: {caller for caller in texts if name in words[caller]} for name in texts}
        return {name: [place for one in _reaching(name, callers) for place in named[one]] for name in texts}

    def _blocks(self) -> dict[str, str]:
        found: dict[str, str] = defaultdict(str)
        for path in sorted((self._root / self._package).rglob("*.sql")):
            text = path.read_text(encoding="utf-8")
            blocks = list(_BLOCK.finditer(text))
            for n, block in enumerate(blocks):
                end = blocks[n + 1].start() if n + 1 < len(blocks) else len(text)
                found[block[1] or block[2]] += text[block.end() : end]
        return found


def _reaching(name: str, callers: dict[str, set[str]]) -> set[str]:
    found, ahead = {name}, [name]
    while ahead:
        new = callers[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def within(tests: Sequence[str], seconds: dict[str, float], budget: float) -> list[str]:
    """As many as fit into so many seconds, at least one."""
    chosen: list[str] = []
    left = budget
    for name in tests:
        left -= seconds[name]
        if chosen and left < 0:
            break
        chosen.append(name)
    return chosen
