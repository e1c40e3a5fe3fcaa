"""A stand-in for the API that tells what registries know, on loopback; it knows a few packages, and may be down."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

KNOWN = {
    "licenses": ["MIT"],
    "publishedAt": "2021-02-20T15:42:16Z",
    "isDefault": True,
    "isDeprecated": False,
    "links": [{"label": "HOMEPAGE", "url": "https://example.org"}, {"label": "SOURCE_REPO", "url": "https://github.com/a/b"}],
    "newField": {"nobody": "knows"},
}


class FakeDepsDev:
    """`moods` by package name: a status, `garbage` or `hang`; everything else is known, `unknown…` is not."""

    def __init__(self) -> None:
        self.moods: dict[str, str] = {}
        self.asked: list[str] = []
        self.stopped = threading.Event()
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
    scene: FakeDepsDev

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.scene.asked.append(self.path)
        name = unquote(self.path.split("/")[5])
        mood = self.scene.moods.get(name) or self.scene.moods.get("*", "404" if name.startswith("unknown") else "200")
        if mood == "hang":
            self.scene.stopped.wait()
            return
        body = b"<html>" if mood == "garbage" else json.dumps(KNOWN).encode()
        self.send_response(int(mood) if mood.isdigit() else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
