"""One request for a page: who asks, what was sent, and the ways to answer. What views get as `holdfast.pages.Page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.app import Holdfast
from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.stats import COUNT_CAP, Stats, stats_of
from holdfast.store.protocol import QueueLoad
from holdfast.version import VERSION
from holdfast.web.access import Act, Caller, may, require
from holdfast.web.dashboard import words
from holdfast.web.dashboard.memory import Count, Memory, Subject, T
from holdfast.web.dashboard.rendering import Assets
from holdfast.web.routing import scope

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    # With no-referrer a browser would not say either which page a form was sent from.
    "Referrer-Policy": "same-origin",
}
LOOKED_AT_FIRST = 250
"""Rows that are read for what no index tells (leases, tasks) while somebody waits for a page, and nothing is remembered."""
COUNTED_AT_FIRST = 5_000
"""Up to where jobs are counted meanwhile, where their number stands beside a list."""
WAITING_AT_FIRST = 500
"""The same for what waits in each queue: of one organization it is told by rows, which lie scattered over the table."""
FIELDS_MAX = 1000
FIELD_CHARS_MAX = 10_000


class SentForm:
    """A form as browsers send it by themselves."""

    def __init__(self, body: bytes) -> None:
        try:
            self._fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise InvalidOption("The form cannot be read; go back and send it again.") from None

    def get(self, name: str, default: str = "") -> str:
        return self._fields.get(name, [default])[0][:FIELD_CHARS_MAX].strip()

    def all(self, name: str) -> list[str]:
        return [value[:FIELD_CHARS_MAX] for value in self._fields.get(name, [])]

    def pairs(self) -> list[tuple[str, str]]:
        return [(name, value) for name, values in self._fields.items() for value in values]


class Site:
    """What all pages of one served application have in common."""

    def __init__(self, hf: Holdfast, env: jinja2.Environment, groups: Sequence[Pages]) -> None:
        self.hf = hf
        self.env = env
        self.nav = [entry for group in groups for entry in group.nav]
        self.sentences = {**{name: text for group in groups for name, text in group.said.items()}, **words.SENTENCES}
        self.assets = Assets()
        self.memory = Memory()


class Counts(NamedTuple):
    """Jobs by state, each counted to a cap at the most."""

    by_state: dict[str, int]
    cap: int


class Loads(NamedTuple):
    """What is in the queues."""

    of_queues: list[QueueLoad]
    at_least: bool
    """More run than were looked at: more of them may be stuck or slow than were found."""
    cap: int = COUNT_CAP
    """Up to where they were counted."""


class Figures(NamedTuple):
    """How the queues are doing."""

    stats: Stats
    at_least: bool
    """More wait or run than were looked at: more of them may be stuck, slow or orphaned than were found."""

    @property
    def loads(self) -> Loads:
        return Loads([queue.load for queue in self.stats.queues.values()], self.at_least)


class PageRequest:
    def __init__(self, site: Site, request: Request, caller: Caller | None) -> None:
        self.site = site
        self.request = request
        self.hf: Any = site.hf
        self._caller = caller
        self.query: Mapping[str, str] = {name: value for name, value in request.query_params.items() if value}
        self.place: Mapping[str, str] = request.path_params
        self.prefix = str(request.scope.get("root_path", "")).rstrip("/")
        self.tenant = scope(caller, self.query.get("tenant")) if caller else None
        self.again = "hx-request" in request.headers
        """Whether a page that is open reads itself again."""
        self._form: SentForm | None = None
        self.now: datetime = site.hf.clock.now() or datetime.now(UTC)

    # -- who asks ------------------------------------------------------------------------------------------------------

    @property
    def caller(self) -> Caller:
        assert self._caller is not None
        return self._caller

    @property
    def known(self) -> bool:
        return self._caller is not None

    @property
    def actor(self) -> str:
        return self.caller.actor

    @property
    def is_service(self) -> bool:
        return self._caller is not None and self._caller.tenant is None

    def may(self, act: str) -> bool:
        return self._caller is not None and may(self._caller, Act[act.upper()])

    def require(self, act: str) -> None:
        require(self.caller, Act[act.upper()])

    def tenant_named(self) -> str:
        if self.tenant is None:
            raise InvalidOption("The service role works across organizations: choose one of them first.")
        return self.tenant

    async def counts(self) -> Counts:
        """Jobs by state, as they were a moment ago."""

        async def count(cap: int) -> Counts:
            return Counts(await self.site.hf.store.job_counts(cap, tenant=self.tenant), cap)

        return await self.remembered("counts", lambda: count(COUNT_CAP), lambda: count(COUNTED_AT_FIRST))

    async def figures(self) -> Figures:
        """How the queues are doing, as it was a moment ago."""
        hf, tenant = self.site.hf, self.tenant

        async def look(rows: int) -> Figures:
            stats = await stats_of(hf.store, hf.settings, tenant, look_at=rows)
            told_by_rows = stats.counts["running"], stats.counts["queued"] if tenant is None else 0
            return Figures(stats, max(told_by_rows) > rows)

        return await self.remembered("figures", lambda: look(COUNT_CAP), lambda: look(LOOKED_AT_FIRST))

    async def loads(self) -> Loads:
        """What is in the queues, as it was a moment ago."""

        async def look(cap: int, rows: int) -> Loads:
            found = await self.site.hf.store.queue_stats(tenant=self.tenant, cap=cap, look_at=rows)
            return Loads(found, sum(load.running for load in found) > rows, cap)

        return await self.remembered(
            "loads", lambda: look(COUNT_CAP, COUNT_CAP), lambda: look(WAITING_AT_FIRST, LOOKED_AT_FIRST)
        )

    async def remembered(self, name: str, count: Count[T], at_first: Count[T] | None = None, *, part: str = "") -> T:
        """`part`: what tells it from others of the same name, apart from the organization that is looked at."""
        return await self.site.memory.get(Subject(name, self.tenant, part), count, at_first)

    # -- what was sent -------------------------------------------------------------------------------------------------

    async def form(self) -> SentForm:
        if self._form is None:
            self._form = SentForm(await self.request.body())
        return self._form

    # -- answers -------------------------------------------------------------------------------------------------------

    def link(self, path: str, **query: Any) -> str:
        asked = {"tenant": self.tenant, **query} if self.is_service else query
        said = {name: str(value) for name, value in asked.items() if value not in (None, "")}
        return f"{self.prefix}{quote(path)}" + (f"?{urlencode(said)}" if said else "")

    def here(self, **changes: Any) -> str:
        """This page with some of its filters changed; None takes one away. Pages begin anew."""
        asked = {name: value for name, value in self.query.items() if name not in ("done", "n", "cursor")}
        return self.link(self.path, **{**asked, **changes})

    @property
    def address(self) -> str:
        """This page with its filters and its place in the list, for `back`."""
        asked = {name: value for name, value in self.query.items() if name not in ("done", "n")}
        return self.link(self.path, **asked)

    @property
    def path(self) -> str:
        path = str(self.request.scope["path"])
        return path[len(self.prefix) :] if self.prefix and path.startswith(self.prefix) else path

    def asset(self, name: str) -> str:
        return f"{self.prefix}/static/{name}?v={self.site.assets.version(name)}"

    @property
    def nav(self) -> list[tuple[str, list[Nav]]]:
        """The entries that this caller may open, by group."""
        groups: dict[str, list[Nav]] = {}
        for entry in self.site.nav:
            if self.may(entry.act):
                groups.setdefault(entry.group, []).append(entry)
        return list(groups.items())

    def is_current(self, entry: Nav) -> bool:
        return self.path == entry.path or (entry.path != "/" and self.path.startswith(entry.path + "/"))

    @property
    def said(self) -> str:
        """What was done just now."""
        sentence = self.site.sentences.get(self.query.get("done", ""), "")
        n = self.query.get("n", "")
        return f"{words.many(int(n), 'job')}: {sentence[0].lower()}{sentence[1:]}" if sentence and n.isdecimal() else sentence

    def time(self, moment: datetime | None) -> Markup:
        if moment is None:
            return Markup("–")
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            moment.astimezone(UTC).isoformat(timespec="milliseconds"), words.exactly(moment), words.ago(moment, self.now)
        )

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        text = self.site.env.get_template(template).render(page=self, version=VERSION, **values)
        # Half a surrogate pair, from a name that somebody sent, is no UTF-8.
        return HTMLResponse(text.encode(errors="replace"), status, headers=HEADERS)

    def redirect(self, path: str, done: str | None = None, **query: Any) -> Response:
        if done is not None:
            self.site.memory.forget(self.tenant)
        return RedirectResponse(self.link(path, done=done, **query), 303, headers=HEADERS)

    async def redirect_back(self, otherwise: str, done: str, **query: Any) -> Response:
        """To the page that the form was on, with its filters."""
        self.site.memory.forget(self.tenant)
        back = local_path((await self.form()).get("back"))
        if back is None:
            return self.redirect(otherwise, done, **query)
        path, _, asked = back.partition("?")
        kept = [(name, value) for name, value in parse_qsl(asked) if name not in ("done", "n")]
        said = urlencode([*kept, ("done", done), *((name, str(value)) for name, value in query.items())])
        return RedirectResponse(f"{path}?{said}", 303, headers=HEADERS)

    async def confirmed(
        self, title: str, sentence: str, *, button: str, count: int = 1, danger: bool = False, note: str = ""
    ) -> Response | None:
        form = await self.form()
        before = form.get("confirm")
        if before == str(count):
            return None
        if before and before.isdecimal():
            note = f"It was {int(before):,} when you were asked, and is {count:,} now: nothing was done yet."
        fields = [(name, value) for name, value in form.pairs() if name != "confirm"]
        return self.render(
            "confirm.html",
            title=title,
            sentence=sentence,
            note=note,
            button=button,
            danger=danger,
            fields=[*fields, ("confirm", str(count))],
            action=self.link(self.path),
            back=local_path(form.get("back")) or self.link("/"),
        )


def local_path(asked: str) -> str | None:
    """An address that a form or a link names, if it is one of ours."""
    if not asked.startswith("/") or asked.startswith("//") or "\\" in asked or not asked.isprintable():
        return None
    return asked[:2000]
