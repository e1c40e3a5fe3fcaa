"""A real Django project in a process of its own: Django is set up once in a process."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.errors import ConfigError
from tests.support.postgres import Databases

SETTINGS = """
import json, os
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["holdfast.integrations.django", "shop"]
DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
HOLDFAST = {"APP": "shop.jobs:hf"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
MODELS = """
from django.db import models

class Order(models.Model):
    item = models.CharField(max_length=50)
    shipped = models.BooleanField(default=False)
"""
GUIDE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
SHOWN = {name: text for name, text in re.findall(r"```python\n# (shop/\w+[.]py)\n(.*?)```", GUIDE, re.DOTALL)}
"""The jobs and the view are those of the guide."""
MIGRATION = """
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(primary_key=True)),
            ("item", models.CharField(max_length=50)),
            ("shipped", models.BooleanField(default=False)),
        ])
    ]
"""
PROGRAM = """
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.core.management import call_command
from django.db import transaction
from holdfast.integrations.django import enqueue, enqueue_on_commit

call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)
from shop.jobs import hf, ship
from shop.models import Order
from shop.views import buy

told = {"pending": hf.migrate_sync()}
try:
    with transaction.atomic():
        enqueue(ship.job(Order.objects.create(item="undone").id))
        enqueue_on_commit(ship.job(0))
        raise RuntimeError
except RuntimeError:
    told["after a rollback"] = len(hf.jobs_sync())
buy("tea")
with transaction.atomic():
    second = Order.objects.create(item="milk")
    enqueue_on_commit(ship.job(second.id))
told["after the commit"] = len(hf.jobs_sync())
hf.close()
print(json.dumps(told))
"""


class Project:
    def __init__(self, folder: Path, database: dict[str, Any], where: str | Path) -> None:
        self.folder, self.database = folder, where
        (folder / "shop" / "migrations").mkdir(parents=True)
        files = {
            "settings.py": SETTINGS,
            "shop/__init__.py": "",
            "shop/models.py": MODELS,
            **SHOWN,
            "shop/migrations/__init__.py": "",
            "shop/migrations/0001_initial.py": MIGRATION,
        }
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        self._env = {**os.environ, "SHOP_DATABASE": json.dumps(database), "DJANGO_SETTINGS_MODULE": "settings"}

    def python(self, *arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=self.folder,
            env=self._env,
            text=True,
            capture_output=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def orders(self) -> list[tuple[str, bool]]:
        query = "SELECT item, shipped FROM shop_order ORDER BY id"
        if isinstance(self.database, str):
            with psycopg.connect(self.database) as connection:
                return connection.execute(query).fetchall()
        file = sqlite3.connect(self.database)
        rows = [(item, bool(shipped)) for item, shipped in file.execute(query)]
        file.close()
        return rows


@pytest.fixture
def project(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if store_kind == "sqlite":
        return Project(
            tmp_path, {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}, tmp_path / "shop.db"
        )
    databases: Databases = request.getfixturevalue("postgres_databases")
    url = databases.create()
    request.addfinalizer(lambda: databases.drop(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    parts = psycopg.conninfo.conninfo_to_dict(url)
    named = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port", "PASSWORD": "password"}
    found = {key: str(parts.get(name) or "") for key, name in named.items()}
    return Project(tmp_path, {"ENGINE": "django.db.backends.postgresql", **found}, url)


def test_a_project_migrates_enqueues_in_its_transactions_and_works(project: Project) -> None:
    """`migrate` makes our tables too; jobs exist if and only if the transaction commits; `holdfast_worker` runs them."""
    told = json.loads(project.python("-c", PROGRAM))
    assert told == {"pending": [], "after a rollback": 0, "after the commit": 2}
    project.python("-m", "django", "holdfast_worker", "--exit-when-idle", "0")
    assert project.orders() == [("tea", True), ("milk", True)]


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": Path("/var/shop.db")}, "sqlite:////var/shop.db"),
        (
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "shop",
                "USER": "a@b",
                "PASSWORD": "p/w:d",
                "HOST": "db",
                "PORT": 5433,
            },
            "postgresql://a%40b:p%2Fw%3Ad@db:5433/shop",
        ),
        (
            {
                "ENGINE": "django.contrib.gis.db.backends.postgis",
                "NAME": "s",
                "HOST": "/run/pg",
                "OPTIONS": {"sslmode": "require"},
            },
            "postgresql:///s?sslmode=require&host=%2Frun%2Fpg",
        ),
    ],
)
def test_a_database_of_django_becomes_a_url(database: dict[str, Any], url: str) -> None:
    """Special characters are written so that they stay what they are."""
    from holdfast.integrations.django import database_url

    assert database_url(database) == url


@pytest.mark.parametrize(
    "database",
    [
        {"ENGINE": "django.db.backends.mysql", "NAME": "x"},
        {"ENGINE": "django.db.backends.postgresql", "NAME": "x", "OPTIONS": {"service": "s"}},
    ],
)
def test_a_database_that_cannot_hold_jobs_is_refused(database: dict[str, Any]) -> None:
    """With what to do about it."""
    from holdfast.integrations.django import database_url

    with pytest.raises(ConfigError):
        database_url(database)
