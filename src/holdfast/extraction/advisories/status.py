"""`status`: what the database holds, how old it is, and what a scan with it would not tell."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from holdfast.extraction.advisories.database import Database, Origin
from holdfast.extraction.advisories.errors import DatabaseUnavailable

OLD_AFTER = timedelta(days=14)
_TITLES = {"advisories": "advisories", "epss": "EPSS scores", "kev": "KEV catalogue"}


class Status(msgspec.Struct, kw_only=True):
    usable: bool
    """False: a scan would check nothing."""
    ecosystems: dict[str, int] = {}
    advisories: Origin | None = None
    epss: Origin | None = None
    kev: Origin | None = None
    age_days: dict[str, int] = {}
    """Kind of data -> days since its publisher changed it, or since it was brought where it has no date of its own."""
    warnings: list[str] = []


def status(path: Path, *, now: datetime | None = None, old_after: timedelta = OLD_AFTER) -> Status:
    try:
        database = Database(path)
    except DatabaseUnavailable as error:
        return Status(usable=False, warnings=[str(error)])
    with closing(database):
        return status_of(database, now=now, old_after=old_after)


def status_of(database: Database, *, now: datetime | None = None, old_after: timedelta = OLD_AFTER) -> Status:
    now = now or datetime.now(UTC)
    origins, warnings = database.origins, []
    age_days = {kind: max(0, (now - (origin.dated or origin.brought_at)).days) for kind, origin in origins.items()}
    if not database.ecosystems:
        warnings.append(
            "The advisory database holds no advisory that can be matched; `holdfast advisories update SOURCE` fills it."
        )
    for kind, title in _TITLES.items():
        if kind in origins and age_days[kind] >= old_after.days:
            warnings.append(
                f"The {title} is {age_days[kind]} days old." if kind == "kev" else f"The {title} are {age_days[kind]} days old."
            )
        elif kind not in origins and kind != "advisories":
            warnings.append(
                f"There is no {title} in the database." if kind == "kev" else f"There are no {title} in the database."
            )
    return Status(
        usable=bool(database.ecosystems),
        ecosystems=database.ecosystems,
        advisories=origins.get("advisories"),
        epss=origins.get("epss"),
        kev=origins.get("kev"),
        age_days=age_days,
        warnings=warnings,
    )
