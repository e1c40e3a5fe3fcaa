"""What comes in over HTTP: whole requests to the served application, and the parts that are read before anybody is known."""

from __future__ import annotations

import asyncio
import time
import unicodedata
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx
import jwt
import msgspec

from holdfast import Holdfast
from holdfast.cli.log_text import log_text
from holdfast.errors import InvalidOption, SignatureInvalid, Unauthenticated
from holdfast.job import LogLine
from holdfast.settings import load_settings
from holdfast.web.api import logs
from holdfast.web.dashboard import filters
from holdfast.web.dashboard.frame import SentForm, local_path
from holdfast.web.stream import event
from holdfast.web.tokens import Tokens, usable_keys
from holdfast.webhooks.signing import headers_of, new_secret, verify
from holdfast.webhooks.targets import check_url
from tests.fuzz.reader import Reader, chosen, parts_of, text_of
from tests.web.scene import Scene

JWT_SECRET = "a secret that nobody would guess, ever"
WEBHOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


class _Served:
    """One application for all requests of this process; who calls is the service role, or nobody."""

    def __init__(self) -> None:
        hf = Holdfast("sqlite://", api_rate=0, jwt_secret=JWT_SECRET, jwt_service_role=True)
        self.loop = asyncio.new_event_loop()
        hf.migrate_sync()
        self.scene = Scene(hf)
        hf.inbound("github", secret="a secret of ours", task="add")
        key = hf.call_sync(self.scene.key("service"))
        self.job = hf.call_sync(hf.enqueue("add", {"a": 1}, tenant="acme")).id
        hf.run_worker_sync(exit_when_idle=0.0)
        self.scene.app.state.web.stopping.set()  # a stream then ends at once
        self.signed_in = {"authorization": f"Bearer {key}"}

    def status(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes, known: bool) -> int:
        return self.loop.run_until_complete(self._send(method, path, headers, body, known))

    async def _send(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes, known: bool) -> int:
        transport = httpx.ASGITransport(self.scene.app, client=("203.0.113.9", 1234), raise_app_exceptions=True)
        mine = self.signed_in if known and b"authorization" not in headers else {}
        async with httpx.AsyncClient(transport=transport, base_url="https://holdfast.test") as client:
            sent = [(name, value) for name, value in headers.items()] + [(k.encode(), v.encode()) for k, v in mine.items()]
            return (await client.request(method, path, headers=sent, content=body)).status_code


@cache
def served() -> _Served:
    return _Served()


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
TOKEN_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
NOT_OURS = {b"host", b"content-length", b"transfer-encoding", b"connection"}
"""What the server below sees to, or a client of its own accord."""


def _request(data: bytes) -> None:
    """`METHOD /path`, headers, an empty line, the body: whatever is in them, no answer says that we broke."""
    head, body = parts_of(data, 2, b"\n\n")
    first, *lines = head.split(b"\n")
    method, address = parts_of(first, 2, b" ")
    headers: dict[bytes, bytes] = {}
    for line in lines[:20]:
        name, value = parts_of(line, 2, b":")
        if name and set(name) <= TOKEN_BYTES and name.lower() not in NOT_OURS:
            headers[name.lower()] = value.strip(b" \t\r").replace(b"\0", b"").replace(b"\r", b"")
    path = "/" + address.decode("latin-1").lstrip("/").replace("{job}", served().job)
    try:
        httpx.URL("https://holdfast.test" + path)
    except httpx.InvalidURL:
        return
    for known in (True, False):
        status = served().status(chosen(method, METHODS), path, headers, body, known)
        assert status < 500 or status == 503, status


def _read(tokens: Tokens, token: str) -> Any:
    """Without a loop: with a shared secret nothing is waited for."""
    try:
        tokens.read(token).send(None)
    except StopIteration as done:
        return done.value
    except Unauthenticated:
        return None
    raise AssertionError("it waits for something")


@cache
def _tokens() -> Tokens:
    return Tokens(load_settings("sqlite://", jwt_secret=JWT_SECRET))


def _token(data: bytes) -> None:
    """Nobody is let in by a token that was not signed."""
    assert _read(_tokens(), text_of(data)) is None


def _claims(data: bytes) -> None:
    """Whatever an issuer signs, is read or refused."""
    token = jwt.api_jws.encode(data, JWT_SECRET, algorithm="HS256")
    found = _read(_tokens(), token)
    if found is not None:
        assert found.expires > time.time() - 60 and (found.subject is None or isinstance(found.subject, str))
        found.at("app_metadata.organization")


def _key_set(data: bytes) -> None:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for key in usable_keys(document).values():
        assert not any(name.startswith("HS") or name == "none" for name in key.algorithms)


def _signature(data: bytes) -> None:
    """Refused whatever the headers say; and what we sign ourselves is taken, and refused with another byte."""
    scheme, *lines = data.split(b"\n")
    body = lines.pop() if lines else b""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, _, value in (x.partition(b":") for x in lines)}
    for kind in ("standard", "github", "stripe"):
        try:
            verify(kind, [WEBHOOK_SECRET], headers, body, 1_700_000_000.0, 300.0)
        except SignatureInvalid:
            continue
        raise AssertionError(f"{kind} took what nobody signed")
    sent = headers_of(
        [WEBHOOK_SECRET, new_secret()], text_of(scheme).encode("utf-8", "replace").decode() or "m", 1_700_000_000, body
    )
    verify("standard", [WEBHOOK_SECRET], sent, body, 1_700_000_000.0, 300.0)
    try:
        verify("standard", [WEBHOOK_SECRET], sent, body + b"x", 1_700_000_000.0, 300.0)
    except SignatureInvalid:
        return
    raise AssertionError("another body was taken")


def _job_filter(data: bytes) -> None:
    """A filter in an address says the same when its own words are read again."""
    given = dict(parse_qsl(data.decode("latin-1"), keep_blank_values=True))
    try:
        found = filters.read(given, None, NOW)
    except InvalidOption:
        return
    assert filters.read(dict(parse_qsl(found.query())), None, NOW) == found
    assert found.words


def _form(data: bytes) -> None:
    try:
        form = SentForm(data)
    except InvalidOption:
        return
    for name, _ in form.pairs()[:20]:
        assert form.get(name) == form.get(name).strip() and len(form.get(name)) <= 10_000
        assert len(form.all(name)) >= 1


def _local_path(data: bytes) -> None:
    """Followed by a browser it stays with us."""
    path = local_path(text_of(data))
    if path is not None:
        led = urlsplit(urljoin("https://holdfast.test/page", path))
        assert (led.scheme, led.netloc) == ("https", "holdfast.test") and path.isprintable()


def _target(data: bytes) -> None:
    """A webhook's address that is taken is https, and names no private address."""
    try:
        url = check_url(text_of(data), ())
    except InvalidOption:
        return
    parts = urlsplit(url)
    assert parts.scheme == "https" and parts.hostname and not parts.hostname.startswith(("127.", "10.", "192.168."))


TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = "\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}\N{ARABIC LETTER MARK}"


def _served_line(data: bytes) -> None:
    """A line is one line in every form in which it is served, and says nothing to a terminal."""
    step, message, more = parts_of(data, 3, b"\n~\n")
    stored = [text_of(part).encode("utf-8", "replace").decode().replace("\0", "?") for part in (step, message, more)]
    line = LogLine(
        run_id="r",
        no=7,
        level="info",
        message=stored[1],
        step=stored[0] or None,
        metadata={stored[2]: stored[1]},
        created_at=NOW,
    )
    text = logs._as_text(line)
    assert text.endswith(b"\n") and text.decode()[:-1].isprintable()
    assert logs._as_json(line).count(b"\n") == 1 and msgspec.json.decode(logs._as_json(line))["message"] == stored[1]
    sent = event(logs._shown(line), id=line.no)
    head, body, *rest = sent.split(b"\n")
    assert head == b"id: 7" and rest == [b"", b""] and b"\r" not in sent
    assert msgspec.json.decode(body.removeprefix(b"data: "))["metadata"] == {stored[2]: stored[1]}
    for sign in log_text([line], colour=False).replace("\n", "").replace("\t", ""):
        assert unicodedata.category(sign) not in ("Cc", "Zl", "Zp"), "speaks to the terminal"
        assert unicodedata.bidirectional(sign) not in TURNING and sign not in MARKS, "turns the writing round"


ADDRESSES: tuple[str, ...] = (
    "jobs",
    "jobs/{job}",
    "jobs/{job}/runs/1/logs",
    "jobs/{job}/runs/1/logs/stream",
    "batches",
    "budgets",
    "schedules",
)
ADDRESSES += ("keys", "members", "projects", "webhooks", "tenants", "queues", "stats", "events", "machines", "breakers")
REQUESTS = (
    *(f"GET /api/{path}?tenant=acme&limit=2&cursor=x&after=1".encode() for path in ADDRESSES),
    b"GET /api/jobs/{job}/runs/1/logs/stream\nLast-Event-ID: 5",
    b'POST /api/jobs\nIdempotency-Key: one\nContent-Type: application/json\n\n{"task": "add", "args": {"a": 1}}',
    b'POST /api/webhooks/in/github\nX-Hub-Signature-256: sha256=00\nX-GitHub-Delivery: 1\n\n{"id": "a"}',
    b"POST /api/schedules\nContent-Type: application/json\n\n"
    + b'{"name": "n", "task": "add", "every": "0 8 * * *", "tenant": "acme"}',
    b"GET /dashboard/jobs?state=failed&last=24h&tag=x",
    b"POST /dashboard/login\nContent-Type: application/x-www-form-urlencoded\n\nkey=hf_x&next=/dashboard",
    b"GET /metrics\nAuthorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x",
    b"DELETE /api/keys/0\nCookie: __Host-holdfast=x",
)
CLAIMS = (
    b'{"exp": 9999999999, "sub": "u1", "role": "service_role"}',
    b'{"exp": "9999999999", "nbf": 1, "aud": ["a"], "iat": 1}',
)
KEYS = b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a", "use": "sig"}, {"kty": "EC", "crv": "P-256"}]}'
SIGNED: tuple[bytes, ...] = (b"m\nwebhook-id:m\nwebhook-timestamp:1700000000\nwebhook-signature:v1,AAAA v1,BBBB\n{}",)
SIGNED += (b"m\nx-hub-signature-256:sha256=00ff\n{}", b"m\nstripe-signature:t=1700000000,v1=00ff\n{}")
LINES = (
    b"step\n~\n\x1b[31mred\x1b[0m\r\n\x9b2J\n~\nkey",
    "\n~\n\u202egnp.exe\u2066\u2028\u2029\x85\ufeff\n~\n".encode(),
    b"\n~\n\xed\xa0\x80\0",
)

WEB = [
    Reader(
        "request",
        _request,
        REQUESTS,
        ("/api/", "/dashboard/", "tenant=", "cursor=", "Idempotency-Key:", "%00", '"args"'),
        1_000,
    ),
    Reader("token", _token, (b"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjk5OTk5OTk5OTl9.AAAA", b"eyJhbGciOiJub25lIn0.e30.")),
    Reader("claims", _claims, CLAIMS, ('"exp"', '"nbf"', '"iat"', '"sub"', "1e400", "NaN", "Infinity")),
    Reader("key-set", _key_set, (KEYS,), ('"kty"', '"oct"', '"OKP"', '"Ed25519"', '"crv"', '"alg"')),
    Reader("signature", _signature, SIGNED),
    Reader("job-filter", _job_filter, (b"state=failed&last=24h&task=a&queue=b&tag=c", b"project=%00&batch=%ff")),
    Reader("form", _form, (b"a=1&b=2&a=3", b"%00=%ff+x&next=/dashboard")),
    Reader(
        "local-path",
        _local_path,
        (b"/dashboard/jobs?state=failed", b"//evil.test/", b"/\\evil.test"),
        ("/", "\\", "//", "https:"),
    ),
    Reader(
        "target",
        _target,
        (b"https://example.com/hook", b"https://[::ffff:10.0.0.1]/", b"https://0x7f.1/"),
        ("https://", "[::", "@"),
    ),
    Reader("served-line", _served_line, LINES, ("\x1b[", "\x1b]", "\u202e", "\x9b")),
]
