"""Which jobs a page is about: the filter as it stands in the address, in the query and in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec

from holdfast.errors import InvalidOption
from holdfast.job import State
from holdfast.reading import job_filter
from holdfast.store.protocol import JobFilter

SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
SPAN_WORDS = {"1h": "the last hour", "24h": "the last 24 hours", "7d": "the last 7 days"}
NAMES = ("task", "queue", "project", "tag", "batch")


class Filter(msgspec.Struct, frozen=True):
    where: JobFilter
    last: str = ""

    @property
    def pairs(self) -> dict[str, str]:
        """As the address has it, without the tenant, which every link carries."""
        said: dict[str, Any] = {
            "state": self.where.state,
            **{name: getattr(self.where, name) for name in NAMES},
            "last": self.last,
        }
        return {name: str(value) for name, value in said.items() if value}

    @property
    def narrow(self) -> bool:
        """Whether more than a state is asked for."""
        return any(name != "state" for name in self.pairs)

    @property
    def words(self) -> str:
        """`failed jobs of task import_csv in queue mail`: what a confirmation names."""
        where = self.where
        said = [f"{where.state} jobs" if where.state else "jobs"]
        said += [f"of task {where.task}"] if where.task else []
        said += [f"in queue {where.queue}"] if where.queue else []
        said += [f"of organization {where.tenant}"] if where.tenant else []
        said += [f"of project {where.project}"] if where.project else []
        said += [f"with the tag {where.tag}"] if where.tag else []
        said += [f"of batch {where.batch}"] if where.batch else []
        said += [f"enqueued in {SPAN_WORDS[self.last]}"] if self.last else []
        return " ".join(said)

    def query(self) -> str:
        return urlencode(self.pairs)


def read(given: Mapping[str, str], tenant: str | None, now: datetime, *, state: State | None = None) -> Filter:
    """`state`: of a page that is about one state only."""
    asked = {name: given[name].strip() for name in NAMES if given.get(name, "").strip()}
    last = given.get("last", "")
    if last and last not in SPANS:
        raise InvalidOption(f"last= is one of {', '.join(SPANS)}.")
    word = given.get("state", "")
    if state is None and word:
        if word not in list(State):
            raise InvalidOption(f"state= is one of {', '.join(State)}.")
        state = State(word)
    after = now - SPANS[last] if last else None
    return Filter(job_filter({**asked, "state": state, "tenant": tenant, "after": after}), last)
