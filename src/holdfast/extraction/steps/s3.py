"""One call of S3: put an object, signed (AWS Signature Version 4). Settings come from the usual AWS variables."""

from __future__ import annotations

import hashlib
import hmac
import os
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

SECONDS_MAX = 60


class UploadFailed(Exception):
    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether another try may do better."""


class Bucket(NamedTuple):
    endpoint: str
    region: str
    path: str
    access_key: str
    secret_key: str
    session_token: str | None

    @classmethod
    def named(cls, storage: str) -> Bucket:
        """`s3://bucket/prefix`, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL_S3."""
        parts = urlsplit(storage)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        keys = [os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
        if not parts.netloc or not all(keys):
            message = "s3://bucket/prefix needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
            raise UploadFailed(message, may_pass=False)
        path = "/".join(part for part in (parts.netloc, parts.path.strip("/")) if part)
        endpoint = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
        return cls(endpoint, region, path, keys[0], keys[1], os.environ.get("AWS_SESSION_TOKEN"))

    def put(self, key: str, content: bytes) -> None:
        path = quote(f"/{self.path}/{key}", safe="/-_.~")
        headers = self._signed(path, content, datetime.now(UTC))
        request = urllib.request.Request(self.endpoint + path, data=content, method="PUT", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX):
                return
        except urllib.error.HTTPError as error:
            error.close()
            raise UploadFailed(f"the storage answered {error.code} {error.reason}", may_pass=error.code >= 500) from error
        except OSError as error:
            raise UploadFailed(f"the storage cannot be reached: {error}", may_pass=True) from error

    def _signed(self, path: str, content: bytes, now: datetime) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        headers = {
            "host": urlsplit(self.endpoint).netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}",
            **({"x-amz-security-token": self.session_token} if self.session_token else {}),
        }
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        wanted = hashlib.sha256(f"PUT\n{path}\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
        scope = f"{now:%Y%m%d}/{self.region}/s3/aws4_request"
        key = f"AWS4{self.secret_key}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        to_sign = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{wanted}"
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        credential = f"Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        sent = {name: value for name, value in headers.items() if name != "host"}
        return {**sent, "Authorization": f"AWS4-HMAC-SHA256 {credential}", "Content-Type": "application/octet-stream"}
