"""A real `git http-backend` on loopback, which also answers with every status that a code host may send."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, TOKEN = "ana", "s3cret-token-of-ana"
WHO = {"GIT_AUTHOR_NAME": "Ana", "GIT_AUTHOR_EMAIL": "ana@example.org"}
WHO |= {"GIT_COMMITTER_NAME": "Ana", "GIT_COMMITTER_EMAIL": "ana@example.org"}


def git(*arguments: str, cwd: Path) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1", **WHO}
    return subprocess.run(["git", *arguments], cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, files: dict[str, bytes], *, branch: str = "main") -> str:
    """A repository with one commit of these files; its id."""
    folder.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", "--initial-branch", branch, cwd=folder)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--allow-empty", "--message", "first", cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder).strip()


class GitServer:
    """`/ok/NAME` is a repository, `/auth/NAME` wants USER and TOKEN, `/429/x` answers 429, `/html/x` a page, `/hang/x` not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stopped = threading.Event()
        self.authorizations: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"scene": self}))
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


class Handler(BaseHTTPRequestHandler):
    scene: GitServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        kind, _, rest = self.path.lstrip("/").partition("/")
        header = self.headers.get("Authorization", "")
        self.scene.authorizations.append(header)
        wanted = "Basic " + base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if kind == "ok" or (kind == "auth" and header == wanted):
            self._backend(f"/{rest}")
        elif kind == "auth":
            self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
        elif kind == "html":
            self._answer(200, b"<html>sign in</html>", {"Content-Type": "text/html"})
        elif kind == "redirect":
            self._answer(302, b"", {"Location": "/html/login"})
        elif kind == "hang":
            self.scene.stopped.wait()
        else:
            self._answer(int(kind), b"remote says no\n", {"Content-Type": "text/plain"})

    do_POST = do_GET

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _backend(self, path: str) -> None:
        place, _, query = path.partition("?")
        size = int(self.headers.get("Content-Length") or 0)
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.scene.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": place,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(size),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=self.rfile.read(size), env=env, capture_output=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._answer(int(headers.pop("Status", "200").split()[0]), body, headers)
