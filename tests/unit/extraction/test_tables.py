"""The application's SQL: the same statements and tables for both databases, all of them used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.extension import Extension
from holdfast.extraction.kinds import KINDS
from holdfast.extraction.reading import LISTED
from tests.support.source import PACKAGE, text_files

TABLES = Path(PACKAGE, "extraction", "tables")


def statements(store: str) -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in (TABLES / store).glob("*.sql"))
    return set(re.findall(r"^-- name: (\S+)", text, re.MULTILINE))


def columns(store: str) -> dict[str, list[str]]:
    """Table -> its columns, in order; the names of tables and columns as both databases write them."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((TABLES / store / "migrations").glob("*.sql")))
    made = re.findall(r"CREATE TABLE holdfast[._](\w+) \((.*?)\n\)", text, re.DOTALL)
    return {table: re.findall(r"^    \"?([a-z_]+)\"? ", body, re.MULTILINE) for table, body in made}


def test_both_databases_have_the_same_statements() -> None:
    """A statement that one of them lacks fails only there."""
    assert statements("sqlite") == statements("postgres")


def test_both_databases_have_the_same_tables() -> None:
    """With the same columns in the same order."""
    assert columns("sqlite") == columns("postgres")
    assert len(columns("sqlite")) == 9


def test_every_statement_is_used() -> None:
    """By its name, or by that of its kind of result."""
    code = "".join(text for path, text in text_files().items() if re.fullmatch(r"src/holdfast/extraction/\w+\.py", path))
    named = set(re.findall(r'"([a-z_]+)"', code))
    of_kinds = {f"{kind}_{verb}" for kind in KINDS for verb in ("save", "forget", "list")}
    of_kinds |= {f"{kind}_page" for kind in LISTED}
    assert sorted(statements("sqlite") - named - of_kinds) == []


def test_a_statement_that_is_not_there_is_named() -> None:
    """A typing error shows at once, and where."""
    extension = Extension("extraction", migrations="holdfast.extraction.tables")
    assert extension.statement("sqlite", "repository_get").startswith("SELECT")
    with pytest.raises(ConfigError, match="extraction has no statement repository_got for sqlite"):
        extension.statement("sqlite", "repository_got")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_table_has_a_column_for_a_secret_itself(store: str) -> None:
    """Where it lies and a fingerprint are all that is kept."""
    found = columns(store)["extraction_secrets"]
    assert found == ["repository_id", "key", "fingerprint", "kind", "path", "line", "verified", "commit"]
