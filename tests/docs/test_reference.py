"""The reference comes out of the code, and nothing that a user can name is missing from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from tools import reference, source_events

PAGES = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", ["settings", "python", "events", "errors"])
def test_a_page_that_comes_out_of_the_code_is_up_to_date(name: str) -> None:
    """A new setting, public name, event or error is in the reference; `make reference` puts it there."""
    made = getattr(reference, f"{name}_page")()
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == made, "out of date: `make reference` writes it anew"


def test_every_public_name_is_in_the_reference() -> None:
    """Whatever `holdfast` exports."""
    page = (PAGES / "python.md").read_text(encoding="utf-8")
    assert [name for name in holdfast.__all__ if not name.startswith("__") and f"### `{name}`" not in page] == []


def test_every_event_of_the_suite_is_found_in_the_source() -> None:
    """The search sees the types in statements, in calls, in parameters and in parts of words."""
    found = source_events.events_of_source()
    assert {"job.failed", "reaper:requeued", "tenant.erased", "budget.warning", "schedule.paused", "member.added"} <= set(found)


def test_a_new_event_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In SQL and in Python alike, also behind a helper of its own."""
    (tmp_path / "new.sql").write_text(
        "-- name: thing_done\nINSERT INTO holdfast.events (tenant, type, at) VALUES ($1, 'thing.done', :now)\n"
        "-- name: thing_told\nINSERT INTO holdfast.events (tenant, type, at) VALUES ($1, $2, :now)\n"
    )
    (tmp_path / "new.py").write_text(
        "async def tell(tx, word):\n    await tx.shared('thing_told', None, f'thing_{word}')\n"
        "async def lose(tx):\n    await tell(tx, 'lost' if tx else 'found')\n"
    )
    monkeypatch.setattr(source_events, "PACKAGE", tmp_path)
    assert set(source_events.events_of_source()) == {"thing.done", "thing_lost", "thing_found"}
