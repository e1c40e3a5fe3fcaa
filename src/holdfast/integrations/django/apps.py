"""The Django app: after every `migrate`, Holdfast's tables are up to date as well."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections, transaction
from django.db.models.signals import post_migrate


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    name = "holdfast.integrations.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        post_migrate.connect(migrate, sender=self, dispatch_uid="holdfast migrate")


def migrate(using: str, **_: Any) -> None:
    """On Django's connection, so that the database of a test gets the tables, too."""
    from holdfast.integrations.django import database_alias, project_app
    from holdfast.integrations.schema import apply, migrations_table

    if using != database_alias():
        return
    hf, connection = project_app(), connections[using]
    with transaction.atomic(using=using), connection.cursor() as cursor:
        exists = "SELECT 1 FROM sqlite_schema WHERE name = %s" if hf.store.name == "sqlite" else "SELECT to_regclass(%s)"
        cursor.execute(exists, [migrations_table(hf)])
        found = cursor.fetchone()
        applied = []
        if found is not None and found[0] is not None:
            cursor.execute(f"SELECT component, version FROM {migrations_table(hf)}")
            applied = [(row[0], row[1]) for row in cursor.fetchall()]
        apply(hf, applied, cursor.execute)
