"""Finding the application that holds the tasks, and making sense of one that cannot be imported."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.call import Call
from holdfast.cli.failures import AppUnusable
from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError, HoldfastError
from holdfast.redact import redact

DATABASE_VARIABLE = "HOLDFAST_DATABASE_URL"


def app_with_tasks(call: Call) -> Holdfast:
    """For commands that need to know the tasks."""
    name = find_app_name(call)
    if name is None:
        raise AppUnusable(
            "There is no app here: name it with --app module:hf or HOLDFAST_APP, or make one with `holdfast init`."
        )
    return load_app(name, call.database)


def app_if_any(call: Call) -> Holdfast:
    """The app where there is one, else just the database."""
    name = find_app_name(call)
    return Holdfast(call.database) if name is None else load_app(name, call.database)


def app_for_database(call: Call) -> Holdfast:
    """For commands that need no tasks: a database that was named is enough, and a broken app is then no hindrance."""
    return Holdfast(call.database) if call.database and not call.app else app_if_any(call)


def find_app_name(call: Call) -> str | None:
    """Strongest first: the option, the environment, the settings file, a tasks.py in the working directory."""
    given = call.app or os.environ.get("HOLDFAST_APP", "").strip() or _named_in_file()
    return given or ("tasks:hf" if Path("tasks.py").exists() else None)


def _named_in_file() -> str | None:
    for file_name, table in (("holdfast.toml", ()), ("pyproject.toml", ("tool", "holdfast"))):
        try:
            found: Any = tomllib.loads(Path(file_name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # a file that cannot be read is refused by the settings, in their own words
        for key in (*table, "app"):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str):
            return found
    return None


def load_app(name: str, database: str | None) -> Holdfast:
    """Import `module:attribute`; the attribute is `hf` where none is named."""
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "hf"
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise AppUnusable(f"--app {redact(name)!r} cannot be read; write it as module:hf, for example tasks:hf.")
    if database:
        parse_database_url(database)
        os.environ[DATABASE_VARIABLE] = database  # an app that names no database itself takes this one, also in isolated runs
    module = _import(module_name, name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Holdfast):
        raise AppUnusable(f"{name} is not a Holdfast object; {_hint(module_name, module)}")
    if database and found.settings.database_url != database:
        raise ConfigError(f"{name} names its database in code, so --database cannot change it; write Holdfast() there.")
    found.settings = dataclasses.replace(found.settings, machine_app=name)  # for local machines, which import it again
    return found


def _import(module_name: str, name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise AppUnusable(f"There is no module called {error.name} here; name yours with --app module:hf.") from error
        raise _unusable(name, error) from error
    except HoldfastError as error:
        raise AppUnusable(f"The app {name} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: BaseException) -> AppUnusable:
    reason = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({os.path.relpath(error.filename)}, line {error.lineno})"
    return AppUnusable(f"The app {name} cannot be imported: {redact(reason)}{place}")


def _hint(module_name: str, module: Any) -> str:
    there = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
    return f"did you mean {module_name}:{there[0]}?" if there else f"{module_name} needs a line such as hf = Holdfast()."
