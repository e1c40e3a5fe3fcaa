"""Writes the pages of docs/reference that come out of the code: settings, the Python API, events, error codes.

`python -m tools.reference` writes them, `--check` only says which are out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast import errors, settings
from holdfast.options import EnqueueOptions, TaskOptions
from holdfast.store import outcomes
from holdfast.web.problems import STATUSES
from tools import reference_words as words
from tools.source_events import PACKAGE, events_of_source, trees

PAGES = PACKAGE.parents[1] / "docs" / "reference"
MADE = "<!-- Made by `make reference` out of the code; changes belong there. -->\n\n"
MODULES = ("holdfast", "holdfast.pipeline", "holdfast.testing", "holdfast.integrations")
"""Whose public names are the Python API, where they exist."""
BESIDE = {
    "holdfast.task": ("Task", "BoundTask"),
    "holdfast.context": ("CurrentRun", "RunLog"),
    "holdfast.job": ("Run", "Event", "LogLine"),
}
"""What public names hand out."""


def main(arguments: list[str]) -> int:
    made = {"settings.md": settings_page(), "python.md": python_page(), "events.md": events_page(), "errors.md": errors_page()}
    old = [name for name, text in made.items() if not (PAGES / name).exists() or (PAGES / name).read_text("utf-8") != text]
    if "--check" in arguments:
        if old:
            print(f"docs/reference: {', '.join(old)} is out of date; `make reference` writes it anew.")
        return 1 if old else 0
    for name in old:
        (PAGES / name).write_text(made[name], encoding="utf-8")
    print(f"Written: {', '.join(old)}." if old else "Everything is up to date.")
    return 0


# -- settings --------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    said = _docstrings_of_fields(settings.__file__, "Settings")
    lines = [
        "# Settings",
        "",
        MADE.strip(),
        "",
        "Strongest first: arguments of `Holdfast(…)`, environment, `holdfast.toml` or `[tool.holdfast]` of `pyproject.toml`",
        "of the working directory, the default. Where a setting has several variables, the first one set counts. A value",
        "that cannot work is refused at the start, by name. Durations are seconds, where nothing else is said.",
        "",
        "| name | environment | default | meaning |",
        "|---|---|---|---|",
    ]
    known = set()
    for field in dataclasses.fields(settings.Settings):
        rule = field.metadata.get("rule")
        if field.name == "origins":
            continue
        env = rule.env if rule else ("HOLDFAST_STAGE_SLA_FACTOR", *settings._OLDER_STAGE_FACTORS)
        known |= set(env)
        meaning = said.get(field.name) or words.SETTINGS.get(field.name, "")
        if rule and "milliseconds" in rule.right:
            meaning += " In the environment: milliseconds."
        if rule and not meaning:
            meaning = f"{rule.right[:1].upper()}{rule.right[1:]}."
        lines.append(f"| `{field.name}` | {_codes(env)} | {_default(field)} | {_cell(meaning)} |")
    lines += ["", "## Other variables", "", "| variable | meaning |", "|---|---|"]
    for name in sorted(_variables() - known):
        if name not in words.VARIABLES:
            raise SystemExit(f"Say in VARIABLES of tools/reference_words.py what {name} means.")
        lines.append(f"| `{name}` | {words.VARIABLES[name]} |")
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is None or value == ():
        return "–"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,.10g}".replace(",", " ") if isinstance(value, float | int) else f"`{value}`"


def _docstrings_of_fields(path: str | None, class_name: str) -> dict[str, str]:
    """A string right below a field says what it means."""
    tree = ast.parse(Path(path or "").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    found = {}
    for field, below in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return found


def _variables() -> set[str]:
    """Every HOLDFAST_… that is a word of the source by itself."""
    found: set[str] = set()
    for tree in trees(PACKAGE).values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("HOLDFAST_[A-Z_]+", node.value):
                found.add(node.value)
    return found


# -- the Python API --------------------------------------------------------------------------------------------------


def python_page() -> str:
    lines = ["# Python API", "", MADE.strip(), "", _opening(), ""]
    for module_name in MODULES:
        if importlib.util.find_spec(module_name) is None:
            continue
        module = importlib.import_module(module_name)
        lines += [f"## {module_name}", "", _first(module.__doc__), ""]
        for name in (one for one in _public(module) if not one.startswith("__")):
            lines += _told(name, getattr(module, name))
    lines += ["## What these hand out", ""]
    for module_name, names in BESIDE.items():
        for name in names:
            lines += _told(name, getattr(importlib.import_module(module_name), name))
    for name, part in _parts():
        lines += _told(f"hf.{name}", type(part))
    lines += _options("Options of `@hf.task(…)`", TaskOptions) + _options("Options of `task.options(…)`", EnqueueOptions)
    return "\n".join(lines).rstrip() + "\n"


def _opening() -> str:
    return (
        "Every public name with its signature. What is not here may change at any time. Methods that end in `_sync` are for\n"
        "programs without asyncio. Errors are on [a page of their own](errors.md)."
    )


def _public(module: Any) -> list[str]:
    return sorted(
        getattr(module, "__all__", None) or [n for n, v in vars(module).items() if _is_own(n, v, module)], key=str.lower
    )


def _is_own(name: str, value: Any, module: Any) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def _parts() -> list[tuple[str, Any]]:
    """The objects that hang on a Holdfast: `hf.tenants` and so on."""
    from holdfast import Holdfast

    app = Holdfast("sqlite:///never-opened.db")
    late = {name: getattr(app, name) for name, what in vars(Holdfast).items() if isinstance(what, cached_property)}
    found = {**vars(app), **late}
    inner = {"settings", "clock", "store"}
    return [
        (name, part)
        for name, part in sorted(found.items())
        if not name.startswith("_")
        and name not in inner
        and type(part).__module__.startswith("holdfast.")
        and _methods(type(part))
    ]


def _told(name: str, what: Any) -> list[str]:
    if inspect.isclass(what):
        heading = name
        if _methods(what).get("__init__") and not name.startswith("hf.") and not hasattr(what, "__struct_fields__"):
            heading = f"{name}{_signature(what.__init__)}"
        lines = [f"### `{name}`", "", *([f"`{heading}`", ""] if heading != name else []), _first(what.__doc__, own=what), ""]
        lines += [f"- {line}" for line in (*_fields(what), *_method_lines(what))]
        return [*lines, ""]
    if callable(what):
        return [f"### `{name}`", "", f"`{_prefix(what)}{name}{_signature(what)}`", "", _first(what.__doc__), ""]
    return [f"### `{name}`", "", f"`{what!r}`" if isinstance(what, str) else _first(type(what).__doc__), ""]


def _fields(kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield ", ".join(f"`{one.value}`" for one in kind)
        return
    names = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    if names:
        yield "fields: " + ", ".join(f"`{name}`" for name in names if not name.startswith("_"))


def _methods(kind: type) -> dict[str, Any]:
    """Those that Holdfast's own classes define, the nearest one counting."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("holdfast"):
            found |= {
                n: v for n, v in vars(base).items() if callable(v) or isinstance(v, property | classmethod | staticmethod)
            }
    return {name: value for name, value in found.items() if not name.startswith("_") or name == "__init__"}


def _method_lines(kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        return
    for name, value in _methods(kind).items():
        if name == "__init__":
            continue
        function = getattr(value, "__func__", value)
        doc = _first(value.fget.__doc__ if isinstance(value, property) else getattr(function, "__doc__", None))
        shown = name if isinstance(value, property) else f"{_prefix(function)}{name}{_signature(function)}"
        yield f"`{shown}`" + (f"  \n  {doc}" if doc else "")


def _prefix(function: Any) -> str:
    return "await " if inspect.iscoroutinefunction(function) else ""


def _signature(function: Any) -> str:
    """Without `self`, and the same with every version of Python."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "(…)"
    shown: list[str] = []
    for place, one in enumerate(parameters):
        if one.name == "self" and place == 0:
            continue
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        if one.kind is one.KEYWORD_ONLY and not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:place]):
            shown.append("*")
        text = stars + one.name
        if isinstance(one.annotation, str):
            text += f": {one.annotation}"
        if one.default is not one.empty:
            simple = one.default is None or type(one.default) in (str, int, float, bool, tuple)
            text += f" = {one.default!r}" if simple else " = …"
        shown.append(text)
    answer = inspect.signature(function).return_annotation
    return f"({', '.join(shown)})" + (f" -> {answer}" if isinstance(answer, str) and answer != "None" else "")


def _first(doc: str | None, own: type | None = None) -> str:
    """The first paragraph on one line; dataclasses and structs without one get theirs from the base, which says nothing."""
    if own is not None and "__doc__" not in vars(own):
        return ""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _options(title: str, kind: Any) -> list[str]:
    lines = [f"## {title}", "", "| option | meaning |", "|---|---|"]
    for name in kind.__annotations__:
        if name not in words.OPTIONS:
            raise SystemExit(f"Say in OPTIONS of tools/reference_words.py what the option {name} means.")
        lines.append(f"| `{name}` | {words.OPTIONS[name]} |")
    return [*lines, ""]


# -- events and errors -----------------------------------------------------------------------------------------------


def events_page() -> str:
    lines = [
        "# Events",
        "",
        MADE.strip(),
        "",
        "What is unusual leaves an event: `hf.events(…)`, `holdfast events`, `GET /api/events`. A job that simply works leaves",
        "none. An event is written in the transaction of the change that it tells of, and kept for `retention_events` days.",
        "",
        "| type | author | what happened | written in |",
        "|---|---|---|---|",
    ]
    for kind, files in sorted(events_of_source().items()):
        if kind not in words.EVENTS:
            raise SystemExit(f"Say in EVENTS of tools/reference_words.py what the event {kind} means ({', '.join(files)}).")
        author, meaning = words.EVENTS[kind]
        lines.append(f"| `{kind}` | {author} | {meaning} | {_codes(sorted(files))} |")
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    lines = [
        "# Error codes",
        "",
        MADE.strip(),
        "",
        "Every error is a class of `holdfast.errors` below `HoldfastError`, each with a stable `code`. The HTTP API answers",
        "with the same code ([more](http.md#errors)), the command line prints it with `--json`.",
        "",
        "| class | code | HTTP | meaning |",
        "|---|---|---|---|",
    ]
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.HoldfastError)]
    for kind in sorted(kinds, key=lambda kind: [base.__name__ for base in reversed(kind.__mro__)]):
        status = next((STATUSES[base] for base in kind.__mro__ if base in STATUSES), "–")
        code = vars(kind).get("code")
        depth = sum(issubclass(base, errors.HoldfastError) for base in kind.__mro__) - 1
        shown = f"`{code}`" if code else "its own"
        lines.append(f"| {'· ' * depth}`{kind.__name__}` | {shown} | {status} | {_cell(_first(kind.__doc__, own=kind))} |")
    lines += ["", "## What a task raises to steer its own job", "", "| class | meaning |", "|---|---|"]
    for steering in (errors.Abort, errors.RetryLater, errors.Snooze):
        lines.append(f"| `{steering.__name__}{_signature(steering.__init__)}` | {_first(steering.__doc__)} |")
    lines += ["", "## Codes of a run that failed", "", "`error_code` of a job, beside what `Abort` and `RetryLater` name:", ""]
    lines += ["| code | meaning |", "|---|---|", *(f"| `{code}` | {meaning} |" for code, meaning in words.RUNS.items())]
    lines += ["", "## Codes of conflicts", "", "`Conflict` and `JobConflict` carry one of these:", ""]
    lines += [f"- `{code}`" for code in sorted(_conflicts())]
    return "\n".join(lines) + "\n"


def _conflicts() -> set[str]:
    found = {*outcomes._CANCEL, *outcomes._RETRY}
    for tree in trees(PACKAGE).values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Conflict", "JobConflict") and len(node.args) == 2:
                code = node.args[1]
                if isinstance(code, ast.Constant):
                    found.add(str(code.value))
                elif isinstance(code, ast.JoinedStr):
                    found.add("".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in code.values))
                elif isinstance(code, ast.IfExp):
                    found |= {str(one.value) for one in (code.body, code.orelse) if isinstance(one, ast.Constant)}
    return found


def _codes(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
