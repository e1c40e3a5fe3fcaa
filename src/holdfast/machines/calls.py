"""HTTP calls to a provider: what is sent again and when, how fast at most, and what an answer that never comes means.

One rule for all providers: network errors, time-outs, 408 and 5xx are sent again after 1, 2 and 4 s; 429 after what
`Retry-After` says, or 2 s. Whoever calls makes requests that can be sent twice: machines have names that are never doubled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import ConfigError
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.machines.protocol import ProviderBusy, ProviderDown
from holdfast.redact import redact

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("holdfast.machines")

RETRY_AFTER_SECONDS = (1.0, 2.0, 4.0)
BUSY_SECONDS = 2.0
BUSY_SECONDS_MAX = 60.0
"""Who asks for a longer wait is asked again by the next recovery, not from here."""
_WORDS_MAX = 300

Sleep = Callable[[float], Awaitable[object]]


class Pace(msgspec.Struct, frozen=True):
    """So many calls a second, after a first rush."""

    per_second: float
    burst: float


class Paces:
    """A bucket per action and thing, so that what the provider would refuse waits here instead."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def wait(self, action: str, thing: str, pace: Pace) -> float:
        """Take one call, and say how long it has to wait; later ones queue up behind it."""
        now = self._now()
        level, at = self._buckets.get((action, thing), (pace.burst, now))
        level = min(pace.burst, level + (now - at) * pace.per_second) - 1
        if len(self._buckets) > 1_000:  # machines come and go: a bucket that has filled up again says nothing
            self._buckets = {key: one for key, one in self._buckets.items() if now - one[1] < 60}
        self._buckets[action, thing] = (level, now)
        return max(0.0, -level / pace.per_second)


class Answer(msgspec.Struct, frozen=True):
    """What came back, for those who understand this provider: 2xx, or a 4xx that sending again would not change."""

    status: int
    body: Any
    request_id: str | None

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def words(self) -> str:
        """What the provider says went wrong: a field of its JSON, or its plain text."""
        said = self.body
        if isinstance(said, dict):
            said = next((said[key] for key in ("error", "message", "reason") if isinstance(said.get(key), str)), "")
        return said if isinstance(said, str) else ""

    @property
    def code(self) -> str:
        """The provider's own word for the kind of error, where it has one."""
        if isinstance(self.body, dict):
            return next((self.body[key] for key in ("reason", "status") if isinstance(self.body.get(key), str)), "")
        return ""


class Calls:
    """A provider's HTTP client. `clean` takes its credentials out of every word that goes into a log or an error."""

    def __init__(
        self,
        name: str,
        make_client: Callable[[], httpx.AsyncClient],
        *,
        clean: Callable[[str], str] = str,
        request_id_header: str = "x-request-id",
        headers: Callable[[], Mapping[str, str]] = dict,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.sleep = sleep
        self._make_client = make_client
        self._client: httpx.AsyncClient | None = None
        self._clean = clean
        self._headers = headers
        self._request_id_header = request_id_header
        self._paces = Paces(now)
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        """Two processes on one connection would read each other's answers."""
        keep_for_parent(self._client)
        self._client = None

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        pace: tuple[str, str, Pace] | None = None,
    ) -> Answer:
        """One call with all its retries. An `Answer` may be a refusal; ProviderDown and ProviderBusy are raised here."""
        content = None if body is None else json.dumps(body).encode()
        failures = busy = 0
        while True:
            if pace and (seconds := self._paces.wait(*pace)) > 0:
                await self.sleep(seconds)
            answer, problem, asked_for = await self._once(method, path, params, content, content_type)
            if answer is not None and problem is None:
                return answer
            request_id = answer.request_id if answer else None
            if answer is not None and _is_busy(answer):
                if busy == len(RETRY_AFTER_SECONDS) or asked_for > BUSY_SECONDS_MAX:
                    raise ProviderBusy(f"{self.name} answers {problem} to {method} {path}: try later.", request_id=request_id)
                busy, seconds = busy + 1, asked_for
            else:
                if failures == len(RETRY_AFTER_SECONDS):
                    tries = f"after {failures + 1} tries"
                    raise ProviderDown(f"{self.name} did not do {method} {path} {tries}: {problem}.", request_id=request_id)
                failures, seconds = failures + 1, RETRY_AFTER_SECONDS[failures]
            log.warning("%s: %s %s: %s; again in %g s%s", self.name, method, path, problem, seconds, _mark(request_id))
            await self.sleep(seconds)

    async def _once(
        self, method: str, path: str, params: Mapping[str, str] | None, content: bytes | None, content_type: str
    ) -> tuple[Answer | None, str | None, float]:
        """The answer if there was one, what is wrong with it if that may pass, and how long to wait for that."""
        import httpx

        if self._client is None:
            self._client = self._make_client()
        headers = {**self._headers(), **({"Content-Type": content_type} if content is not None else {})}
        try:
            got = await self._client.request(method, path, params=params, content=content, headers=headers)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return None, self.words_of(error), 0.0
        answer = Answer(got.status_code, self._body_of(got), got.headers.get(self._request_id_header))
        level = logging.DEBUG if method == "GET" and answer.ok else logging.INFO
        log.log(level, "%s: %s %s: %d%s", self.name, method, path, answer.status, _mark(answer.request_id))
        if _is_busy(answer):
            return answer, f"429 {answer.words}".strip(), _retry_after(got.headers.get("retry-after"))
        if answer.status == 408 or answer.status >= 500:
            return answer, f"{answer.status} {answer.words}".strip(), 0.0
        if 300 <= answer.status < 400:
            return answer, f"{answer.status}, a redirect", 0.0
        return answer, None, 0.0

    def _body_of(self, got: httpx.Response) -> Any:
        """JSON with every error text made safe to show; else the start of what was sent instead."""
        try:
            body = got.json()
        except ValueError:  # a proxy's page, or nothing
            return self.clean(got.text)
        if got.status_code >= 300 and isinstance(body, dict):
            return {key: self.clean(value) if isinstance(value, str) else value for key, value in body.items()}
        return body

    def words_of(self, error: Exception) -> str:
        return self.clean(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    def clean(self, text: str) -> str:
        return redact(self._clean(text))[:_WORDS_MAX].strip()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def need_httpx(extra: str) -> None:
    """Say what to install, instead of a traceback from deep inside."""
    try:
        import httpx  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(f"the machine provider needs httpx: pip install 'holdfast[{extra}]'.") from None


def time_of(text: object) -> datetime | None:
    """A provider's time stamp, or nothing where it is none."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _is_busy(answer: Answer) -> bool:
    return answer.status == 429 or (answer.status >= 400 and "rate limit exceeded" in answer.words.lower())


def _retry_after(text: str | None) -> float:
    """Seconds, or a date; without either 2 s."""
    if not text:
        return BUSY_SECONDS
    try:
        return max(0.0, float(text)) if text.strip().isdigit() else _until(parsedate_to_datetime(text))
    except ValueError:
        return BUSY_SECONDS


def _until(at: datetime) -> float:
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _mark(request_id: str | None) -> str:
    return f" (request {request_id})" if request_id else ""
