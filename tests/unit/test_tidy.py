"""The rules of this code base, as tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source import PACKAGE, ROOT, forget, imports_of, is_within, modules, parsed, text_files

LAYERS: list[set[str]] = [
    {
        "addresses",
        "clock",
        "codec",
        "console",
        "correlation",
        "database_url",
        "errors",
        "forking",
        "handover",
        "ids",
        "portal",
        "process_identity",
        "redact",
        "roles",
        "sealing",
        "setting_rules",
        "settings",
        "thread_starts",
        "tracing",
        "version",
    },
    {"job", "options", "task"},
    {"store"},
    {
        "tx",
        "context",
        "enqueue",
        "extension",
        "bulk",
        "claim",
        "run",
        "finish",
        "reap",
        "prune",
        "runlog",
        "follow",
        "looking",
        "reading",
        "why",
        "limits",
        "schedule",
        "shares",
        "batch",
        "ticks",
        "stats",
        "sync_twins",
        "tally",
        "outbox",
        "pages",
        "people",
        "tenant_data",
        "tenants",
        "webhooks",
    },
    {"adopt", "machines", "pipeline"},
    {"processes"},
    {"app"},
    {""},
    {"cli", "doctor", "doctor_check", "doctor_postgres", "integrations", "web", "__main__"},
    {"extraction"},
]
"""Lowest first: a module imports from its own row and the rows above it here. `""` is the package's own `__init__`."""

EXTRACTION_SEES = {
    "holdfast",
    "holdfast.addresses",
    "holdfast.errors",
    "holdfast.sealing",
    "holdfast.extraction",
    "holdfast.pages",
    "holdfast.pipeline",
    "holdfast.web.extending",
}

CONCRETE = ["holdfast.store.sqlite", "holdfast.store.postgres"]
CONCRETE += ["holdfast.machines.local", "holdfast.machines.fly", "holdfast.machines.kubernetes"]
"""Chosen in app.py alone."""

DRIVERS: dict[str, set[str]] = {
    "asyncpg": {"holdfast.store.postgres"},
    # The advisories are a read-only file of their own, never the store's database, and need only its lookups.
    "sqlite3": {"holdfast.store.sqlite", "holdfast.extraction.advisories"},
    "psycopg": set(),
    "aiosqlite": set(),
    "sqlalchemy": {"holdfast.integrations"},
    "django": {"holdfast.integrations"},
}
"""Driver -> the packages that may import it."""

OUR_PYTHON = ("src", "tests", "tools", "bench", "examples")
LINES_PER_FUNCTION_MAX = 50
LONG_FUNCTIONS: set[str] = set()
"""`path:function`; each one a decision."""


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    yield
    forget()


def part_of(module: str) -> str:
    """`holdfast.store.sqlite.store` -> `store`; the package itself is the empty name."""
    return module.removeprefix("holdfast").lstrip(".").split(".")[0]


def level_of(module: str) -> int:
    """A module without a place counts as lowest: it may import nothing until it gets one."""
    return next((level for level, parts in enumerate(LAYERS) if part_of(module) in parts), 0)


def test_every_module_has_a_place_in_the_layers() -> None:
    """A new module is put into a layer on purpose."""
    placed = set().union(*LAYERS)
    homeless = sorted(module for module in modules() if part_of(module) not in placed)
    assert homeless == [], "add them to LAYERS in this file"


def test_imports_go_downward_only() -> None:
    """No module knows a layer above its own."""
    upward = [
        f"{module} imports {imported}"
        for module in modules()
        for imported in imports_of(module, at_top_only=module == "holdfast.app")  # asgi() reaches up for web, when it is called
        if imported in modules() and level_of(imported) > level_of(module)
    ]
    assert upward == []


def test_extraction_sees_only_the_public_api() -> None:
    """The extraction application has no back door."""
    back_doors = [
        f"{module} imports {imported}"
        for module in modules()
        if is_within(module, "holdfast.extraction")
        for imported in imports_of(module)
        if is_within(imported, "holdfast")
        and imported not in EXTRACTION_SEES
        and not is_within(imported, "holdfast.pipeline")
        and not is_within(imported, "holdfast.extraction")
    ]
    assert back_doors == []


def test_concrete_stores_and_providers_are_named_by_app_alone() -> None:
    """Everything but the composition root works with the protocols."""
    named = [
        f"{module} imports {imported}"
        for module in modules()
        if module != "holdfast.app"
        for imported in imports_of(module)
        for concrete in CONCRETE
        if is_within(imported, concrete) and not is_within(module, concrete)
    ]
    assert named == []


def test_drivers_are_imported_inside_their_store_alone() -> None:
    """A driver is a detail of its store; `tx` meets callers' drivers only inside functions, once they are loaded."""
    strangers = [
        f"{module} imports {imported}"
        for module in modules()
        for imported in imports_of(module, at_top_only=module == "holdfast.tx")
        if (driver := imported.split(".")[0]) in DRIVERS and not any(is_within(module, home) for home in DRIVERS[driver])
    ]
    assert strangers == []


def test_no_test_sleeps() -> None:
    """Tests wait for a state or move the clock; only the waiting helper sleeps, and the simulation, where time is for free."""
    sleepers = [
        f"{path}: {ast.unparse(node)}"
        for path, tree in parsed("tests").items()
        if path != "tests/support/waiting.py" and not path.startswith("tests/simulation/")
        for node in ast.walk(tree)
        if _sleeps(node)
    ]
    assert sleepers == [], "use until() of tests/support/waiting.py; work that must hang waits for an event"


def _sleeps(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("time", "asyncio") and any(alias.name == "sleep" for alias in node.names)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sleep":
        return False
    if ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep"):
        return False
    only_yields = ast.unparse(node) == "asyncio.sleep(0)"
    return not only_yields


def test_nothing_waits_with_wait_for() -> None:
    """`asyncio.wait_for` of Python 3.11 may lose a cancellation, and a process then goes on; use `asyncio.timeout`."""
    waiting = [
        f"{path}:{node.lineno}"
        for path, tree in parsed("src").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "wait_for" and ast.unparse(node) == "asyncio.wait_for"
    ]
    assert waiting == []


def test_nothing_reads_the_stacks_of_other_threads() -> None:
    """It takes a lock of the interpreter and allocates: Python 3.11 may stop the whole process (python/cpython 106883)."""
    readers = {"_current_" + "frames", "_current_" + "exceptions"}
    found = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, tree in parsed("src", "tests", "tools", "bench").items()
        for node in ast.walk(tree)
        for name in (getattr(node, "attr", None), getattr(node, "id", None), getattr(node, "name", None), _text_of(node))
        if name in readers
    ]
    assert found == []


def _text_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_no_function_is_too_long() -> None:
    """A function beyond its budget is a decision, listed by name; a list entry that is not needed goes."""
    long = {
        f"{path}:{node.name}"
        for path, tree in parsed(*OUR_PYTHON).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > LINES_PER_FUNCTION_MAX
    }
    assert long == LONG_FUNCTIONS


def test_no_absolute_path_of_somebodys_machine() -> None:
    """Nothing in the repository depends on where it was written."""
    folders = "|".join(["root", "home", "work", "Users"])
    machine_path = re.compile(rf"(?<![\w.)}}\]*-])/(?:{folders})/")
    found = [f"{path}:{number}" for path, number, line in _lines() if machine_path.search(line)]
    assert found == []


def test_no_promise_of_later_work_without_its_issue() -> None:
    """What is left for later has an issue number, `(#12)`, right behind the word."""
    words = "|".join(["TO" + "DO", "FIX" + "ME"])  # in two halves, so that this line does not break its own rule
    later = re.compile(rf"\b(?:{words})\b(?! ?\(#\d+\))")
    found = [f"{path}:{number}" for path, number, line in _lines() if later.search(line)]
    assert found == []


def _lines() -> list[tuple[str, int, str]]:
    return [(path, number, line) for path, text in text_files().items() for number, line in enumerate(text.splitlines(), 1)]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_named_statement_is_used(store: str) -> None:
    """A statement that no code of its store names is dead."""
    folder = f"src/holdfast/store/{store}"
    names = {
        name
        for path in Path(PACKAGE, "store", store).glob("*.sql")
        for name in re.findall(r"^-- name: (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    texts = {node.value for tree in parsed(folder).values() for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert sorted(names - texts) == []


def test_every_module_says_what_it_is() -> None:
    """A module has a docstring; an empty package marker needs none."""
    silent = [path for path, tree in parsed(*OUR_PYTHON).items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_every_test_states_its_promise() -> None:
    """A test has a docstring."""
    silent = [
        f"{path}:{node.name}"
        for path, tree in parsed("tests").items()
        if Path(path).name.startswith("test_")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_every_path_in_the_makefile_exists() -> None:
    """No target points at something that is gone."""
    recipes = "\n".join(
        line for line in text_files()["Makefile"].splitlines() if line.startswith("\t") and "rm -rf" not in line
    )
    paths = re.findall(r"(?<![\w./-])(?:tests|tools|examples|bench)(?:/[\w./-]+)?(?![\w/-])", recipes)
    assert [path for path in paths if not (ROOT / path).exists()] == []
