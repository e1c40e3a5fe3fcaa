"""Holdfast in a Django project: put `holdfast.integrations.django` into INSTALLED_APPS.

`HOLDFAST = {"APP": "project.jobs:hf", "DATABASE": "default"}` in the settings says where the project's Holdfast is, and which
of DATABASES it uses. `manage.py migrate` then migrates Holdfast's tables as well, in a test's database too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import close_old_connections, connections, transaction

from holdfast import Holdfast, Job
from holdfast.cli.apps import load_app
from holdfast.errors import ConfigError
from holdfast.task import JobSpec

F = TypeVar("F", bound=Callable[..., Any])

_PASSED_ON = ("sslmode", "sslcert", "sslkey", "sslrootcert", "target_session_attrs")


def database_alias() -> str:
    return str(_given().get("DATABASE", "default"))


def make_holdfast(**options: Any) -> Holdfast:
    """For the project's jobs.py: `hf = make_holdfast()`, on the database that Django uses."""
    return Holdfast(database_url(connections[database_alias()].settings_dict), **options)


def project_app() -> Holdfast:
    """What `HOLDFAST["APP"]` names, else one without tasks."""
    name = _given().get("APP")
    return _without_tasks() if name is None else load_app(str(name), None)


def enqueue(*jobs: JobSpec[Any], using: str | None = None) -> list[Job[Any]]:
    """`enqueue(ship.job(order.id))`: in Django's own transaction. The jobs exist if and only if it commits."""
    return jobs[0].task.app.enqueue_jobs_sync(jobs, connections[using or database_alias()]) if jobs else []


def enqueue_on_commit(*jobs: JobSpec[Any], using: str | None = None) -> None:
    """After the commit of another database than the jobs' own: a process that dies in between loses them."""
    if jobs:
        transaction.on_commit(lambda: jobs[0].task.app.enqueue_jobs_sync(jobs, None), using=using)


def fresh_connections(task: F) -> F:
    """Below `@hf.task`, for sync tasks that use the ORM: connections that died or are too old are opened anew."""

    @functools.wraps(task)
    def run(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return task(*args, **kwargs)
        finally:
            close_old_connections()

    return run  # type: ignore[return-value]


def database_url(database: dict[str, Any]) -> str:
    """The URL of one entry of DATABASES."""
    engine, name = str(database["ENGINE"]), str(database["NAME"])
    if engine.endswith("sqlite3"):
        return f"sqlite:///{name}"
    if not engine.endswith(("postgresql", "postgis")):
        raise ConfigError(f"Jobs live in PostgreSQL or SQLite, not in {engine}: name another of DATABASES in HOLDFAST.")
    options = database.get("OPTIONS") or {}
    if "service" in options or "passfile" in options:
        raise ConfigError("Holdfast reads no service or password file: write HOST, USER and PASSWORD into DATABASES.")
    query = {key: str(options[key]) for key in _PASSED_ON if key in options}
    user, password = quote(str(database.get("USER") or ""), safe=""), quote(str(database.get("PASSWORD") or ""), safe="")
    host, port = str(database.get("HOST") or ""), str(database.get("PORT") or "")
    if host.startswith("/"):  # the folder of a socket
        query |= {"host": host, **({"port": port} if port else {})}
        host = port = ""
    login = f"{user}{f':{password}' if password else ''}@" if user else ""
    place = f"{host}{f':{port}' if port else ''}"
    return f"postgresql://{login}{place}/{quote(name, safe='')}{f'?{urlencode(query)}' if query else ''}"


def _given() -> dict[str, Any]:
    given: dict[str, Any] = getattr(settings, "HOLDFAST", {})
    unknown = sorted(set(given) - {"APP", "DATABASE"})
    if unknown:
        raise ConfigError(f"There is no HOLDFAST[{unknown[0]!r}] in Django's settings; there are APP and DATABASE.")
    return given


@functools.cache
def _without_tasks() -> Holdfast:
    return make_holdfast()
