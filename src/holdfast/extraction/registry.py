"""What registries know of packages, by the API of deps.dev, which answers for all of the ecosystems that we read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from packageurl import PackageURL

from holdfast.extraction.enrichment import Registry
from holdfast.extraction.manifests.packages import identify_purl

if TYPE_CHECKING:
    import httpx

DEPS_DEV = "https://api.deps.dev"
TIMEOUT_SECONDS = 20.0
ANSWER_BYTES_MAX = 1_000_000
TOGETHER = 8
GIVE_UP_AFTER = 10
"""So many failures in one call, and the rest is not asked for: the service is down, or tired of us."""
TEXT_CHARS_MAX = 500
LICENSES_MAX = 20
SYSTEMS = {
    "npm": "npm",
    "pypi": "pypi",
    "golang": "go",
    "cargo": "cargo",
    "maven": "maven",
    "nuget": "nuget",
    "gem": "rubygems",
}


class _Link(msgspec.Struct):
    label: str = ""
    url: str = ""


class _Version(msgspec.Struct, rename="camel"):
    published_at: str | None = None
    is_default: bool | None = None
    is_deprecated: bool | None = None
    licenses: list[str] = []
    links: list[_Link] = []


def registry_for(address: str | None) -> Registry | None:
    """None: nobody is asked, and dependencies stay pending."""
    return DepsDev(address) if address else None


class DepsDev:
    """Called with package URLs. What it does not know is `{}`; what was not answered is left out, and stays pending."""

    def __init__(self, address: str = DEPS_DEV) -> None:
        self._address = address.rstrip("/")

    async def __call__(self, purls: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        import httpx

        found: dict[str, dict[str, Any]] = {}
        turn, failures = asyncio.Semaphore(TOGETHER), 0

        async def one(client: httpx.AsyncClient, purl: str) -> None:
            nonlocal failures
            path = _path_of(purl)
            if path is None:
                found[purl] = {}
                return
            async with turn:
                if failures >= GIVE_UP_AFTER:
                    return
                facts = await _asked(client, self._address + path)
            if facts is None:
                failures += 1
            else:
                found[purl] = facts

        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            await asyncio.gather(*(one(client, purl) for purl in purls))
        return found


def _path_of(purl: str) -> str | None:
    """None: there is nobody to ask, because the kind is unknown or no version is."""
    try:
        parsed, package = PackageURL.from_string(purl), identify_purl(purl)
    except ValueError:
        return None
    system = SYSTEMS.get(parsed.type)
    if system is None or package is None or not parsed.version:
        return None
    return f"/v3/systems/{system}/packages/{quote(package.name, safe='')}/versions/{quote(parsed.version, safe='')}"


async def _asked(client: httpx.AsyncClient, address: str) -> dict[str, Any] | None:
    """None: no answer, or none that can be understood; somebody has to ask again."""
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), client.stream("GET", address) as answer:
            if answer.status_code == 404:
                return {}
            body = b""
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    return None
            return _facts(msgspec.json.decode(body, type=_Version)) if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _facts(told: _Version) -> dict[str, Any]:
    source = next((one.url for one in told.links if one.label == "SOURCE_REPO" and one.url.startswith("https://")), None)
    return {
        "licenses": [_short(one) for one in told.licenses[:LICENSES_MAX]],
        "published_at": None if told.published_at is None else _short(told.published_at),
        "newest": told.is_default,
        "deprecated": told.is_deprecated,
        "source": None if source is None else _short(source),
    }


def _short(text: str) -> str:
    return "".join(one for one in text if one.isprintable())[:TEXT_CHARS_MAX]
