"""What strangers send to the server over real sockets: crooked paths, headers that want to be two, bodies that never end."""

from __future__ import annotations

import hmac
import logging
import re
import socket
from collections.abc import Iterator
from unittest import mock

import httpx
import pytest
import uvicorn

from holdfast import Holdfast
from holdfast.cli.process_log import ConsoleLines, JsonLines
from holdfast.job import LogLine
from holdfast.store.protocol import LogBatch
from holdfast.web import patience
from tests.support.served import Served
from tests.support.source import PACKAGE
from tests.support.waiting import until_sync

PATIENCE_SECONDS = 60.0
REQUEST_SECONDS = 5.0
"""What one may take; the others are through long before, also on a busy machine."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(f"sqlite:///{tmp_path_factory.mktemp('served') / 'holdfast.db'}", request_limit=REQUEST_SECONDS)
    yield server
    server.close()


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_SECONDS)


def asked(served: Served, request: bytes) -> bytes:
    """Everything that comes back, byte for byte; the request goes as it is, which no client library would do."""
    with connected(served) as wire:
        wire.sendall(request)
        answer = b""
        while piece := wire.recv(65536):
            answer += piece
    return answer


ROOTS = ("/", "/static/", "/api/", "/api/runs/")
CLIMBS = ("../../../../../../etc/passwd", "..%2f..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
          "..%5c..%5c..%5cetc%5cpasswd", "....//....//....//etc/passwd", "%00/etc/passwd")  # fmt: skip


@pytest.mark.parametrize("root", ROOTS)
def test_no_path_leads_to_a_file_of_the_machine(served: Served, root: str) -> None:
    """Plain, escaped, doubled and with backslashes: each is refused or not there, and nothing of the file comes back."""
    key = served.key()
    for climb in CLIMBS:
        head = f"GET {root}{climb} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
        answer = asked(served, head.encode())
        status = answer.split(b" ", 2)[1]
        assert status.startswith((b"3", b"4")) and b"root:" not in answer, (root, climb, answer[:300])


@pytest.mark.parametrize("name", ["a%0d%0aSet-Cookie:%20x=1", "a%0aX-Evil:%201", "a%E5%98%8D%E5%98%8ASet-Cookie:x=1"])
def test_no_header_can_be_planted_by_a_path(served: Served, name: str) -> None:
    """Whatever of a request comes back in a header is escaped or not taken over."""
    key = served.key(role="owner")
    with httpx.Client(base_url=served.base, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS) as client:
        for path in (f"/api/jobs/{name}", f"/api/projects/{name}", f"/{name}"):
            answer = client.get(path)
            assert not {"set-cookie", "x-evil"} & {header.lower() for header in answer.headers}
        made = client.post("/api/projects", json={"id": "a\r\nX-Evil: 1"})
        assert "x-evil" not in made.headers and "\n" not in made.headers.get("location", "")


@pytest.mark.parametrize("given", ["a b", "a\tb", "x" * 101, "<script>", "é", ""])
def test_a_strangers_request_id_is_taken_over_only_where_it_is_harmless(served: Served, given: str) -> None:
    """It stands in a header and in every line of the log."""
    with httpx.Client(base_url=served.base, timeout=PATIENCE_SECONDS) as client:
        answer = client.get("/healthz", headers={"X-Request-Id": given.encode("latin-1")})
        assert answer.headers["x-request-id"] != given and answer.headers["x-request-id"].isalnum()
        assert client.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("path", ["/api/jobs/", "/jobs/", "/static", "/login/", "/", "/login?next=//evil.example/"])
def test_the_host_that_a_request_names_leads_nobody_there(served: Served, path: str) -> None:
    """Neither an address to go to nor a page repeats it: a cache would hand it to others."""
    head = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\nConnection: close\r\n"
    for key in (f"Authorization: Bearer {served.key()}\r\n", ""):
        answer = asked(served, f"{head}{key}\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 ") and b"evil.example" not in answer, answer[:500]


async def test_a_length_of_thousands_of_digits_is_a_body_too_large(hf: Holdfast) -> None:
    """Servers that pass it on would make a number of it that Python refuses; ours hangs up before."""
    transport = httpx.ASGITransport(app=hf.asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/api/session", content=b"{}", headers={"Content-Length": "9" * 5000})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


class Lines(logging.Handler):
    """What a process would print."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.mark.parametrize("formatter", [JsonLines, ConsoleLines])
def test_a_request_writes_one_line_whatever_its_path(served: Served, formatter: type[logging.Formatter]) -> None:
    """Neither a line break nor a sequence that a terminal obeys gets from a path into the server's log."""
    log, lines = logging.getLogger("holdfast.web"), Lines(formatter())
    log.addHandler(lines)
    before, _ = log.level, log.setLevel(logging.INFO)
    try:
        httpx.get(f"{served.base}/api/jobs/x%0aERROR%20forged%1b%5b2J%e2%80%a8y", timeout=PATIENCE_SECONDS)
        until_sync(lambda: lines.lines)  # the answer goes first
    finally:
        log.removeHandler(lines)
        log.setLevel(before)
    (line,) = lines.lines
    assert "\n" not in line and "\x1b" not in line and "\u2028" not in line and "forged" in line


def test_a_client_that_never_ends_its_body_is_given_up(served: Served) -> None:
    """After the time that a request may take it is answered, and meanwhile others are served."""
    key = served.key()
    head = f"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    with connected(served) as slow:
        slow.sendall(head.encode() + b"Content-Length: 1000\r\n\r\n{")
        assert httpx.get(f"{served.base}/healthz", timeout=PATIENCE_SECONDS).status_code == 200
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = slow.recv(65536)
            assert piece, "closed without an answer"
            answer += piece
    assert answer.startswith(b"HTTP/1.1 503 ")


def test_a_header_without_end_is_refused(served: Served) -> None:
    """It is not kept in memory until it ends: the server answers and hangs up long before it is at its end."""
    with connected(served) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with pytest.raises(OSError):
            for _ in range(1000):
                wire.sendall(b"x" * 65536)


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HTTP/1.1\r\nHost: lo"])
def test_a_client_that_never_says_what_it_wants_is_hung_up_on(
    served: Served, beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all, or half a head."""
    monkeypatch.setattr(patience, "HEAD_SECONDS", 1.0)
    with connected(served) as wire:
        wire.sendall(beginning)
        assert wire.recv(65536) == b""


def test_a_client_is_not_waited_for_in_the_middle_of_its_second_request_either(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that was answered once has earned no more patience."""
    monkeypatch.setattr(patience, "HEAD_SECONDS", 1.0)
    with connected(served) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.recv(65536).startswith(b"HTTP/1.1 200")
        wire.sendall(b"GET /he")
        while wire.recv(65536):
            pass  # the rest of the first answer


def test_two_lengths_of_one_body_are_refused(served: Served) -> None:
    """A proxy in front could believe the other one, and a second request would be smuggled past it."""
    for lengths in (b"Content-Length: 2\r\nContent-Length: 30\r\n", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"):
        request = b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + lengths + b"\r\n"
        answer = asked(served, request + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1 and b"HTTP/1.1 200" not in answer


LINES, LINE_CHARS = 1000, 15_000


@pytest.fixture(scope="module")
def long_log(served: Served) -> str:
    """The address of a log far larger than all that lies between a server and a client; its run goes on."""

    async def written() -> str:
        @served.hf.task
        async def talk() -> None: ...

        job = await served.hf.enqueue("talk", tenant="acme")
        store = served.hf.store
        (run,) = (await store.job_claim(worker="w", machine=None, queues=["default"], tasks=["talk"], limit=1)).jobs
        lines = [LogLine(run_id=run.run_id, no=no, level="info", message="x" * LINE_CHARS) for no in range(1, LINES + 1)]
        assert await store.log_append_if_leased([LogBatch(run.id, run.run_id, lines)])
        return f"/api/jobs/{job.id}/runs/1/logs"

    return served.run(written())


@pytest.mark.parametrize("what", ["/stream", "?limit=1000"])
def test_a_client_that_never_reads_its_answer_is_hung_up_on(
    served: Served, long_log: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream and a page: meanwhile others are served, and its place is free again."""
    monkeypatch.setattr(patience, "UNREAD_SECONDS", 1.0)
    with connected(served) as deaf:
        deaf.sendall(
            f"GET {long_log}{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.key()}\r\n\r\n".encode()
        )
        assert deaf.recv(8).startswith(b"HTTP/1.1")
        assert httpx.get(f"{served.base}/healthz", timeout=PATIENCE_SECONDS).status_code == 200
        until_sync(lambda: not served.connections(), PATIENCE_SECONDS)
    assert served.streams() == 0


async def test_a_client_that_reads_slowly_is_waited_for(served: Served) -> None:
    """Only who takes nothing at all between two looks is given up."""
    transport = mock.Mock()
    transport.get_write_buffer_size.side_effect = [900, 899, 899, 500, 500, 500]
    connection = patience.Impatient(uvicorn.Config(served.app, log_config=None), uvicorn.server.ServerState(), {})
    connection.transport, connection.loop = transport, mock.Mock()
    connection._watch_reader()
    for _ in range(2):
        connection._hang_up_unless_read()
    assert not transport.abort.called and connection.loop.call_later.call_count == 3
    connection._hang_up_unless_read()
    assert transport.abort.called


HURTING = {
    "open": b'{"id": ' + b"[" * 400_000,
    "deep": b'{"id": ' + b"[" * 400_000 + b"]" * 400_000 + b"}",
    "number": b'{"id": 1' + b"0" * 500_000 + b"}",
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("body", HURTING.values(), ids=HURTING.keys())
@pytest.mark.parametrize("path", ["/api/jobs", "/api/projects", "/api/jobs/cancel", "/api/session"])
def test_a_body_made_to_hurt_is_refused(served: Served, path: str, body: bytes) -> None:
    """Nested without end, or a number of half a megabyte: it is the caller's fault, and no trace of ours."""
    headers = {"Authorization": f"Bearer {served.key(role='owner')}", "Content-Type": "application/json"}
    answer = httpx.post(served.base + path, content=body, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code in (400, 422)


def test_a_form_of_very_many_fields_is_refused(served: Served) -> None:
    """Before they are taken apart."""
    content = "&".join(f"a{number}=1" for number in range(20_000))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert httpx.post(f"{served.base}/login", content=content, headers=headers, timeout=PATIENCE_SECONDS).status_code == 422


# -- secrets are compared in constant time -----------------------------------------------------------------------------


async def test_a_key_is_compared_in_constant_time(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `hmac.compare_digest`, on hashes: how long a wrong key takes says nothing about a right one."""
    made, compared = await hf.keys.create(tenant="acme", role="viewer"), list[tuple[object, object]]()
    real = hmac.compare_digest

    def watched(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    assert await hf.keys.valid(made.secret) is not None
    assert compared and not any(made.secret in str(side) for pair in compared for side in pair)


def test_no_module_compares_a_secret_by_equality() -> None:
    """Names that hold secrets stand in no `==`, wherever they are."""
    names = r"(\w*secret|\w*signature|\w*api_key|\w*password|hashed|digest)"
    suspicious = re.compile(rf"\b{names}\s*(==|!=)|(==|!=)\s*{names}\b")
    lines = [
        (path.name, line.strip()) for path in PACKAGE.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert [(name, line) for name, line in lines if suspicious.search(line)] == []
