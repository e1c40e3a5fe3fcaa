"""The suite itself: no verb of storage without a test that runs on both stores."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from holdfast.store.protocol import Store

FOLDER = Path(__file__).parent
OPENERS = {"open_another", "open_unmigrated"}
"""Fixtures that open a store of each kind in turn, as `store` itself is one."""

Functions = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]


def verbs() -> set[str]:
    """What the protocol asks of a store, apart from its name."""
    return {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}


def used_on_both_stores(sources: dict[str, str]) -> set[str]:
    """The verbs that tests of both stores use, by themselves or through a helper that they hand their store to."""
    functions: Functions = {}
    for source in sources.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[node.name] = node
    used: set[str] = set()
    reached: set[str] = set()
    waiting = [name for name, node in functions.items() if name.startswith("test_") and _runs_on_both(node)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            used |= set(_verbs_used(functions[name]))
            waiting += [called for called in _names_called(functions[name]) if called in functions]
    return used


def _runs_on_both(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool({argument.arg for argument in function.args.args} & {"store", *OPENERS})


def _stores_in(function: ast.AST) -> set[str]:
    """The names of variables that hold a store."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.annotation is not None and ast.unparse(node.annotation) == "Store":
            found.add(node.arg)
        if isinstance(node, ast.Assign) and any(opener in ast.unparse(node.value) for opener in OPENERS):
            found |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def _verbs_used(function: ast.AST) -> Iterator[str]:
    stores = _stores_in(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in stores or any(owner == f"{opener}()" for opener in OPENERS):
                yield node.attr


def _names_called(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_the_suite_calls_every_verb_on_both_stores() -> None:
    """A verb that only one store's tests use, or none, is where the stores drift apart."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert sorted(verbs() - {"name"} - used_on_both_stores(sources)) == []


def test_a_verb_used_for_one_store_alone_does_not_count() -> None:
    """The check above can fail: only a test that takes `store`, and what it calls, is believed."""
    source = """
async def test_of_postgres(postgres_url):
    store = open_store("postgres", postgres_url)
    await store.order_heal()

async def helper(store: Store):
    await store.job_get("x")

async def unused(store: Store):
    await store.prune(None, limit=1)

async def test_of_both(store: Store, open_another):
    await helper(store)
    other = open_another()
    await other.job_counts()
    connection.close()
"""
    assert {"job_get", "job_counts"} == used_on_both_stores({"a.py": source})
