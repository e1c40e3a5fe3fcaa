"""Templates: escaped by themselves, ours by their names and those of an application below its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import jinja2

from holdfast.pages import Pages
from holdfast.web.dashboard import charts, words

PACKAGE = "holdfast.web.dashboard"


def environment(groups: Sequence[Pages]) -> jinja2.Environment:
    return _environment(tuple((group.name, group.templates) for group in groups if group.templates))


@lru_cache  # a template is costly to compile: once in a process, whatever number of applications show it
def _environment(templates: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    own = jinja2.PackageLoader(PACKAGE)
    others = {name: jinja2.PackageLoader(package) for name, package in templates}
    env = jinja2.Environment(
        loader=jinja2.ChoiceLoader([own, jinja2.PrefixLoader(others)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        number=words.number,
        capped=words.capped,
        span=words.span,
        dollars=words.dollars,
        exactly=words.exactly,
        json=words.json_text,
        many=words.many,
        line=charts.line,
        stacks=charts.stacks,
    )
    return env


class Assets:
    """Addresses of static files that change with their content, so that a browser may keep each for good."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def version(self, name: str) -> str:
        if name not in self._versions:
            content: Any = resources.files(PACKAGE).joinpath("static", *name.split("/"))
            self._versions[name] = hashlib.sha256(content.read_bytes()).hexdigest()[:12] if content.is_file() else "0"
        return self._versions[name]
