"""Pages that an application adds to the dashboard: `hf.extend("shop", pages=[pages])`. Light: nothing of the web is imported.

    pages = Pages("shop", templates="shop.web", nav=[Nav("Orders", "/orders", "read_jobs")])

    @pages.get("/orders", "read_jobs")
    async def orders(page: Page) -> Any:
        return page.render("shop/orders.html", orders=await find(page.tenant))

`templates` names a package with a folder `templates`; in it `{% extends "frame.html" %}` puts a page into the frame. Acts are
those of `holdfast.web.access.Act`, in lower case: whoever may not is not offered the entry, and is refused the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec


class Form(Protocol):
    """What was sent with a form."""

    def get(self, name: str, default: str = "") -> str: ...
    def all(self, name: str) -> list[str]: ...


class Page(Protocol):
    """One request for a page, by somebody who is known, and the ways to answer it."""

    hf: Any
    tenant: str | None
    """The organization that is looked at; None: all of them, for the service role only."""
    actor: str
    """Goes into `by=`."""
    query: Mapping[str, str]
    place: Mapping[str, str]
    """The parts of the path that have names."""

    def may(self, act: str) -> bool: ...

    def require(self, act: str) -> None:
        """Raises Forbidden, which is answered by a page that says so."""

    def tenant_named(self) -> str:
        """The organization; InvalidOption where the service role has named none."""

    async def form(self) -> Form: ...

    def link(self, path: str, **query: Any) -> str:
        """Below whatever prefix the dashboard is mounted at, and of the organization that is looked at."""

    def render(self, template: str, *, status: int = 200, **values: Any) -> Any: ...

    def redirect(self, path: str, done: str | None = None, **query: Any) -> Any:
        """After something was done; `done` names a sentence of the frame (`cancelled`, `saved`, …) or of `said=`."""

    async def confirmed(self, title: str, sentence: str, *, button: str, count: int = 1, danger: bool = False) -> Any:
        """None where the form says `confirm` with this count; else the answer: a question that names what would happen."""


View = Callable[[Any], Awaitable[Any]]
"""Takes a Page."""
V = TypeVar("V", bound=View)


class Nav(msgspec.Struct, frozen=True):
    """One entry of the navigation."""

    title: str
    path: str
    act: str
    group: str = ""
    """Entries of a group stand together, below its name."""


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    act: str
    view: View


class Pages:
    """A group of pages: its routes, its entries in the navigation, its templates."""

    def __init__(
        self, name: str, *, templates: str | None = None, nav: Sequence[Nav] = (), said: Mapping[str, str] | None = None
    ) -> None:
        """`said`: more sentences for `redirect(done=…)`, by name; those of the frame keep theirs."""
        self.name = name
        self.said = dict(said or {})
        self.templates = templates
        self.nav = tuple(nav)
        self.routes: list[Route] = []

    def get(self, path: str, act: str) -> Callable[[V], V]:
        return self._route("GET", path, act)

    def post(self, path: str, act: str) -> Callable[[V], V]:
        return self._route("POST", path, act)

    def _route(self, method: str, path: str, act: str) -> Callable[[V], V]:
        def add(view: V) -> V:
            self.routes.append(Route(method, path, act, view))
            return view

        return add
