"""Every page of the dashboard, with a thousand jobs and with a million: does it stay as quick?

Which pages there are is asked of the dashboard itself, so that a new one is measured without anybody thinking of it. Pages
are fetched inside this process and without a client library, whose time would make every ratio look better than it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from urllib.parse import urlencode

import msgspec

from bench.metrics.pages_scene import SMALL, Scene, laid
from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan

BAR = 1.5
REQUESTS = 5
"""Of each page in a sample; the median counts."""
SAMPLES = 3
"""Short ones, in turn with those of the small database, for each that is asked for: a disturbance meets both alike."""
NOBODY = "none-of-them"

FILTERS: dict[str, list[dict[str, str]]] = {
    "/": [{"last": "24h"}, {"last": "7d"}],
    "/jobs": [
        *({"state": state} for state in ("queued", "running", "completed", "failed", "cancelled")),
        {"task": "noop"},
        {"task": NOBODY},
        {"tag": "some"},
        {"tag": NOBODY},
        {"queue": "mail"},
        {"project": NOBODY},
        {"batch": "batch-0"},
        {"last": "1h"},
        {"state": "completed", "tag": NOBODY},
        {"state": "queued", "tag": NOBODY},
    ],
    "/dead": [{"task": NOBODY}, {"tag": "some"}, {"tag": NOBODY}],
    "/jump": [{"q": "tag:some"}],
    "/webhooks/{webhook}": [{"state": "failed"}],
    "/extraction/rows": [{"kind": "vulnerabilities"}, {"kind": "dependencies", "q": "lodash"}],
}
"""Beside the bare page: what asks most of the database."""
NEEDED: dict[str, dict[str, str]] = {
    "/projects/show": {"id": "web"},
    "/extraction/project": {"id": "shop"},
    "/extraction/rows": {"id": "shop", "kind": "dependencies"},
    "/extraction/runs": {"id": "shop"},
    "/extraction/settings": {"id": "shop"},
}
"""What a page cannot do without."""
JOBS = ("completed", "failed", "queued")
"""Why a job waits is asked on the page of one that is queued."""
REMEMBERING = ("/", "/jobs", "/queues", "/tenants")
"""Pages that remember for some seconds what they counted: asked once more as if nobody had looked."""


class Asked(msgspec.Struct, frozen=True):
    """One page as somebody sees it; ids of jobs and webhooks are put in for each database."""

    who: str
    path: str
    query: dict[str, str] = {}
    form: dict[str, str] | None = None
    note: str = ""
    first: bool = False
    """Nobody has looked within the last seconds: what is remembered for so long has to be counted."""

    @property
    def title(self) -> str:
        said = urlencode({name: value for name, value in self.query.items() if name != "tenant"})
        return f"{self.path}{f'?{said}' if said else ''}{self.note}, {self.who}"


def asked_of(scene: Scene) -> Iterator[Asked]:
    """The operator sees all organizations; acme is one among hundreds; giant has a quarter of all jobs."""
    for path, roles in scene.pages.items():
        paths = [path.replace("{job_id}", f"{{{state}}}") for state in JOBS] if "{job_id}" in path else [path]
        for each in paths:
            place = each.replace("{webhook_id}", "{webhook}")
            needed = NEEDED.get(path, {})
            whole = [needed, *({**needed, **query} for query in FILTERS.get(place, []))]
            of_acme = "{" in place or bool(needed)
            for query in whole:
                if "service" in roles:
                    yield Asked("operator", place, {**query, "tenant": "acme"} if of_acme else query)
                if "owner" in roles:
                    yield Asked("acme", place, query)
                    if path in ("/", "/jobs", "/dead", "/queues", "/organization"):
                        yield Asked("giant", place, query)
    for who in ("operator", "acme", "giant"):
        for path in REMEMBERING:
            if who == "operator" or "owner" in scene.pages[path]:
                yield Asked(who, path, note=" at first", first=True)
        form = {"verb": "retry", "scope": "filter", "state": "failed"}
        yield Asked(who, "/jobs/act", form=form, note=": retry all failed?")


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        small, large = await laid(place, SMALL), await laid(place, plan.flat_rows)
        print(f"  {place.name}: filled in {small.seconds:.0f} and {large.seconds:.0f} s", flush=True)
        try:
            for asked in (one for one in asked_of(small) if plan.page in one.title):
                await _warm_up(small, large, asked)
                found, calibrations = await alternate(plan.runs * SAMPLES, _page(small, asked), _page(large, asked))
                line = Line(
                    metric="pages", store=place.name, title=asked.title, unit="ms", ours=found[1],
                    floors={f"{SMALL:,} jobs": found[0]}, calibrations=calibrations,
                )  # fmt: skip
                lines.append(line)
        finally:
            await small.close()
            await large.close()
    return lines


async def _warm_up(small: Scene, large: Scene, asked: Asked) -> None:
    """PostgreSQL settles for a plan at the sixth time."""
    for scene in (small, large):
        for _ in range(6):
            await scene.fetch(asked.who, asked.path, asked.query, asked.form)


def _page(scene: Scene, asked: Asked) -> Sample:
    async def sample() -> float:
        taken = []
        for _ in range(REQUESTS):
            if asked.first:
                scene.forget()
            else:
                await scene.settle()
            started = time.perf_counter()
            await scene.fetch(asked.who, asked.path, asked.query, asked.form)
            taken.append((time.perf_counter() - started) * 1000)
        return median(taken)

    return sample


def summary(lines: list[Line]) -> str:
    """Rows for the table in docs/decisions/009, and the page that grows most on each store."""
    stores = list(dict.fromkeys(line.store for line in lines))
    titles = list(dict.fromkeys(line.title for line in lines))
    found = {(line.title, line.store): line for line in lines}
    head = "".join(f" {store}, {SMALL:,} jobs | many | ratio |" for store in stores)
    rows = [f"| page, seen by |{head}", f"|---|{'---:|---:|---:|' * len(stores)}"]
    for title in titles:
        cells = [found.get((title, store)) for store in stores]
        said = (f" {line.floor:.1f} | {line.middle:.1f} | {line.ratio:.2f} |" if line else " | | |" for line in cells)
        rows.append(f"| {title} |{''.join(said)}")
    for store in stores:
        ranked = sorted((line for line in lines if line.store == store), key=lambda line: -(line.ratio or 0))
        above = [line for line in ranked if (line.ratio or 0) > BAR]
        rows.append(
            f"\n{store}: worst ratio {ranked[0].ratio:.2f}, {ranked[0].title}; {len(above)} of {len(ranked)} above {BAR}"
        )
        rows += [f"  {line.ratio:.2f}  {line.floor:.1f} -> {line.middle:.1f} ms  {line.title}" for line in above]
    return "\n".join(rows)
