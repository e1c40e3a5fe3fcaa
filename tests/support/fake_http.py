"""An HTTP server on loopback that pretends to be a provider: real sockets, answers from a table, accidents on request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    """None: none was sent."""

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class Reply(NamedTuple):
    status: int
    body: Any = None
    headers: Mapping[str, str] = {}


class Accident(Enum):
    """What no table of answers can say."""

    LOST = "the request is done, the connection cut before the answer"
    CUT = "the connection is cut before anything is done"
    SILENCE = "the request is done, and the answer never comes"
    BROKE = "the request is done, and the answer is 500"


class Fault(NamedTuple):
    matches: Callable[[Request], bool]
    what: Reply | Accident


class MovedTime:
    """Seconds that pass only when somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


class FakeServer:
    """Subclasses answer in `reply`, which is called by one thread at a time."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.violations: list[str] = []
        """What was wrong with requests, and with this fake itself: a test ends with none."""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"fake": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fail(self, line: str, *what: Reply | Accident) -> None:
        """The next requests that end like this (`POST /machines`, `/start`) meet these, in this order."""
        self.faults += [Fault(lambda request: request.line.endswith(line), one) for one in what]

    def sent(self, line: str) -> list[Request]:
        return [request for request in self.requests if request.line.endswith(line)]

    def reply(self, request: Request) -> Reply:
        raise NotImplementedError

    def answer(self, request: Request) -> Reply | None:
        """None: cut the connection."""
        with self._lock:
            self.requests.append(request)
            fault = next((one for one in self.faults if one.matches(request)), None)
            if fault is None:
                return self._reply(request)
            self.faults.remove(fault)
            if isinstance(fault.what, Reply):
                return fault.what
            if fault.what is not Accident.CUT:
                self._reply(request)
        if fault.what is Accident.SILENCE:
            self._closed.wait()
        return Reply(500, {"error": "internal"}) if fault.what is Accident.BROKE else None

    def _reply(self, request: Request) -> Reply:
        try:
            return self.reply(request)
        except Exception as error:
            self.violations.append(f"the fake broke down at {request.line}: {error!r}")
            raise

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, else each answer waits 40 ms for an acknowledgement

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = msgspec.json.decode(raw) if raw else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.fake.answer(Request(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
        if reply is None:
            self.close_connection = True
            return
        content = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_PATCH = do_PUT = do_GET
