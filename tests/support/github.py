"""A stand-in for GitHub's API on loopback, which also misbehaves in every way that an API can."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

TOKEN = "ghs_minted-for-this-run-alone"


class FakeGitHub:
    """`mood` says how the next requests are answered; `asked` keeps them."""

    def __init__(self) -> None:
        self.mood = "well"
        self.asked: list[dict[str, Any]] = []
        self.stopped = threading.Event()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.private_key = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
        self.public_key = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"scene": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    scene: FakeGitHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.scene.asked.append(
            {"path": self.path, "authorization": self.headers.get("Authorization", ""), "body": json.loads(body)}
        )
        mood = self.scene.mood
        if mood == "well":
            self._answer(201, {"token": TOKEN, "expires_at": "2030-01-01T00:00:00Z"})
        elif mood.isdigit():
            self._answer(int(mood), {"message": "no"})
        elif mood == "limited":
            self._answer(403, {"message": "API rate limit exceeded"}, {"X-RateLimit-Remaining": "0"})
        elif mood == "garbage":
            self._send(201, b"<html>sign in</html>", {})
        elif mood == "tokenless":
            self._answer(201, {"token": ""})
        elif mood == "line break":
            self._answer(201, {"token": "ghs_a\r\nX-Injected: yes"})
        elif mood == "endless":
            self._send(201, b'{"token": "' + b"x" * 5_000_000 + b'"}', {})
        elif mood == "elsewhere":
            self._send(307, b"", {"Location": "/elsewhere"})
        elif mood == "silent":
            self.scene.stopped.wait()
        elif mood == "cut":
            self.wfile.write(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{")

    def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(body).encode(), headers or {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # it hung up on us, which is its right
