"""The repository's own files as the tidy tests read them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"
NOT_OURS = {"__pycache__", "build", "dist", "node_modules", "vendor", "holdfast.egg-info"}


@cache
def text_files() -> dict[str, str]:
    """Path from the root -> content, of every text file that is not generated, vendored or hidden (`.ci` apart)."""
    found = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and (name == ".ci" or not name.startswith("."))]
        for name in names:
            path = Path(folder, name)
            if name == ".git":  # a file, where this is one of several work trees
                continue
            try:
                found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError):
                continue
    return found


@cache
def parsed(*folders: str) -> dict[str, ast.Module]:
    """Path from the root -> syntax tree, of the Python files in these folders."""
    inside = tuple(f"{folder}/" for folder in folders)
    return {path: _tree(path) for path in text_files() if path.endswith(".py") and path.startswith(inside)}


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(text_files()[path], path)


def forget() -> None:
    """Free the trees: some million objects slow down everything that runs later in the process."""
    for cached in (modules, parsed, _tree):
        cached.cache_clear()


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree, of every module of the package."""
    return {_dotted(path): tree for path, tree in parsed("src/holdfast").items()}


def imports_of(name: str, *, at_top_only: bool = False) -> Iterator[str]:
    """The modules that a module imports when it runs; imports for type checkers alone do not count."""
    for node in _running_nodes(modules()[name], at_top_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, name)
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if full in modules() else source


def _running_nodes(tree: ast.AST, at_top_only: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if at_top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        yield from _running_nodes(node, at_top_only)


def _absolute(node: ast.ImportFrom, importer: str) -> str:
    if not node.level:
        return node.module or ""
    is_package = f"src/{importer.replace('.', '/')}/__init__.py" in text_files()
    parts = importer.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def _dotted(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
