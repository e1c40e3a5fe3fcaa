"""Uploading to S3-compatible storage: what goes over the wire, and what its answers mean."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.extraction.steps.s3 import Bucket, UploadFailed


class Storage(BaseHTTPRequestHandler):
    """Answers with the status that the key names, else takes the object."""

    taken: dict[str, tuple[bytes, dict[str, str]]] = {}

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.rpartition("/")[2]
        self.taken[self.path] = (content, {key.lower(): value for key, value in self.headers.items()})
        self.send_response(int(name) if name.isdigit() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Storage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    yield Bucket.named("s3://reports/team a")
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_object_is_put_whole_and_signed(bucket: Bucket) -> None:
    """The key itself is never sent."""
    bucket.put("shop/1/results.json", b"{}")
    content, headers = Storage.taken["/reports/team%20a/shop/1/results.json"]
    assert (content, headers["x-amz-content-sha256"]) == (b"{}", hashlib.sha256(b"{}").hexdigest())
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=id/")
    assert "very secret" not in str(headers)


@pytest.mark.parametrize(("status", "may_pass"), [(403, False), (503, True)])
def test_only_what_may_pass_is_worth_another_try(bucket: Bucket, status: int, may_pass: bool) -> None:
    """A refusal stays one."""
    with pytest.raises(UploadFailed, match=str(status)) as raised:
        bucket.put(str(status), b"")
    assert raised.value.may_pass is may_pass


def test_without_keys_it_says_which_variables_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(UploadFailed, match="AWS_ACCESS_KEY_ID"):
        Bucket.named("s3://reports")


def test_the_signature_depends_on_all_that_is_sent(bucket: Bucket) -> None:
    """Another object, path, time or key gives another one; the same gives the same."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    first = bucket._signed("/a", b"1", now)["Authorization"]
    assert first == bucket._signed("/a", b"1", now)["Authorization"]
    others = [
        bucket._signed("/a", b"2", now),
        bucket._signed("/b", b"1", now),
        bucket._signed("/a", b"1", now.replace(hour=1)),
        bucket._replace(secret_key="other")._signed("/a", b"1", now),
    ]
    assert first not in [one["Authorization"] for one in others]
