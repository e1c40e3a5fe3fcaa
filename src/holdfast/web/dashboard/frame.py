"""One request for a page: who asks, what was sent, and the ways to answer. What views get as `holdfast.pages.Page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.app import Holdfast
from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.people.cache import ShortCache
from holdfast.stats import Stats
from holdfast.version import VERSION
from holdfast.web.access import Act, Caller, may, require
from holdfast.web.dashboard import words
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
COUNTS_SECONDS = 3.0
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
        self.counts: ShortCache[dict[str, int]] = ShortCache(COUNTS_SECONDS)
        """By tenant: however many look on, they are counted once in a while."""
        self.stats: ShortCache[Stats] = ShortCache(COUNTS_SECONDS)


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

    async def counts(self) -> dict[str, int]:
        """Jobs by state, each counted to a cap at the most, as they were a moment ago."""
        who = f"tenant {self.tenant}" if self.tenant is not None else "all"
        found = self.site.counts.get(who)
        if found is None:
            found = await self.site.hf.store.job_counts(words.COUNT_CAP, tenant=self.tenant)
            self.site.counts.put(who, found)
        return found

    async def stats(self) -> Stats:
        """How the queues are doing, as it was a moment ago."""
        who = f"tenant {self.tenant}" if self.tenant is not None else "all"
        found = self.site.stats.get(who)
        if found is None:
            found = await self.site.hf.stats(tenant=self.tenant)
            self.site.stats.put(who, found)
        return found

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
        return RedirectResponse(self.link(path, done=done, **query), 303, headers=HEADERS)

    async def redirect_back(self, otherwise: str, done: str, **query: Any) -> Response:
        """To the page that the form was on, with its filters."""
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
