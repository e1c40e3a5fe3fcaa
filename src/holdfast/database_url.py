"""Which store a database URL means, and how much of it may be shown."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from holdfast.errors import ConfigError

_EXAMPLES = "use sqlite:///jobs.db or postgresql://user:password@host:5432/database"
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:@\s]*)(?::\d{1,5})?")
_SHOWN_PARAMETERS = ("host", "port", "dbname", "user")


@dataclasses.dataclass(frozen=True)
class DatabaseURL:
    kind: Literal["sqlite", "postgres"]
    path: str | None = None
    """SQLite: the file, or `:memory:`."""
    url: str | None = dataclasses.field(default=None, repr=False)
    """PostgreSQL: as the driver wants it, password included."""
    safe: str = ""
    """What may be shown: no password."""


def parse_database_url(url: str) -> DatabaseURL:
    """Tell which store a URL means. No message of this function contains any part of the URL but its scheme."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"this database URL is no text in UTF-8: {_EXAMPLES}.") from None
    scheme, separator, rest = url.strip().partition("://")
    backend = scheme.lower().partition("+")[0]
    if separator and backend == "sqlite":
        return _sqlite_url(rest)
    if separator and backend in ("postgresql", "postgres"):
        return _postgres_url(rest)
    known = separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,30}", scheme)
    what = f"{scheme}:// is no database that Holdfast knows" if known else "this is no database URL"
    raise ConfigError(f"{what}: {_EXAMPLES}.")


def _sqlite_url(rest: str) -> DatabaseURL:
    if rest in ("", "/:memory:"):
        return DatabaseURL("sqlite", path=":memory:", safe="sqlite:///:memory:")
    path = rest[1:]
    if not rest.startswith("/") or not path:
        raise ConfigError(
            "a SQLite URL has three slashes before the file's name: sqlite:///jobs.db, or sqlite:////var/lib/jobs.db."
        )
    if "?" in path or "\0" in path:
        raise ConfigError("a SQLite URL takes no options after the file's name: use sqlite:///jobs.db.")
    return DatabaseURL("sqlite", path=path, safe=f"sqlite:///{path}")


def _postgres_url(rest: str) -> DatabaseURL:
    authority, tail = re.fullmatch(r"([^/?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    login, at, hosts = authority.rpartition("@")
    # A raw / ? or # in a password ends the authority early: the rest of the password would be shown as a path.
    cut_short = "#" in tail or ("@" in tail and (at or ":" in authority))
    if cut_short or re.search(r"\s", rest) or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ConfigError(
            "this PostgreSQL URL cannot be read: write special characters in the user or password percent-encoded "
            "(@ as %40, / as %2F, # as %23), as in postgresql://user:password@host:5432/database."
        )
    database, _, query = tail.partition("?")
    shown = urlencode([(k, v) for k, v in parse_qsl(query) if k in _SHOWN_PARAMETERS], safe="/,:")
    user = login.partition(":")[0]
    safe = f"postgresql://{user}{'@' if user else ''}{hosts}{database}{'?' if shown else ''}{shown}"
    return DatabaseURL("postgres", url=f"postgresql://{rest}", safe=safe)
