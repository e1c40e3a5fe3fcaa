"""Where advisories come from: a file, a folder, a zip of records, or an http address that gives one of these."""

from __future__ import annotations

import gzip
import re
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from holdfast.extraction.advisories.errors import SourceUnusable
from holdfast.extraction.advisories.records import RECORD_BYTES_MAX

DOWNLOAD_BYTES_MAX = 8 * 1024**3
DOWNLOAD_SECONDS_MAX = 3_600.0
SILENCE_SECONDS_MAX = 60.0
UNPACKED_BYTES_MAX = 64 * 1024**3
JSON_BYTES_MAX = 256 * 1024**2
RECORDS_MAX = 3_000_000
_CHUNK_BYTES = 1024**2
_OF_FOLDERS = ("*.json", "*.zip", "epss*.csv", "epss*.csv.gz")


class Document(msgspec.Struct):
    """One record, a list of records or a KEV catalogue; of an archive also what cannot be read."""

    label: str
    content: bytes | None
    """None: larger than a record may be."""


class Scores(msgspec.Struct):
    """A file of EPSS scores, which is read while it streams."""

    label: str
    stream: Any


@contextmanager
def local_copy(source: str) -> Iterator[Path]:
    """The path itself, or of an address a download that is gone when the block ends."""
    if "://" not in source:
        path = Path(source)
        if not path.exists():
            raise SourceUnusable(f"There is no file or folder {source}.")
        yield path
        return
    with TemporaryDirectory(prefix="holdfast-advisories-") as folder:
        path = Path(folder, "download")
        try:
            _download(source, path)
        except (OSError, ValueError, HTTPException) as error:
            raise SourceUnusable(f"{label_of(source)} could not be fetched: {_reason(error)}.") from error
        yield path


def label_of(source: str) -> str:
    """As it may be shown and kept: no user, password or query, which may hold secrets."""
    if "://" not in source:
        return source
    scheme, _, rest = source.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def read(path: Path, label: str) -> Iterator[Document | Scores]:
    """What a file or folder holds, in a stable order; links inside a folder are not followed."""
    if path.is_dir():
        inside = sorted({file for pattern in _OF_FOLDERS for file in path.rglob(pattern)})
        for file in inside:
            if file.is_file() and not file.is_symlink():
                yield from _read_file(file, f"{label.rstrip('/')}/{file.relative_to(path).as_posix()}")
    else:
        yield from _read_file(path, label)


def _read_file(path: Path, label: str) -> Iterator[Document | Scores]:
    """By its first bytes, since an address need not end in a telling name."""
    with path.open("rb") as file:
        start = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n")
        file.seek(0)
        if start.startswith(b"PK"):
            yield from _read_zip(file, label)
        elif start.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as stream:
                yield Scores(label, stream)
        elif start.startswith((b"{", b"[")):
            content = file.read(JSON_BYTES_MAX + 1)
            yield Document(label, content if len(content) <= JSON_BYTES_MAX else None)
        else:
            yield Scores(label, file)


def _read_zip(file: IO[bytes], label: str) -> Iterator[Document]:
    with readable(label), zipfile.ZipFile(file) as archive:
        records = [entry for entry in archive.infolist() if entry.filename.endswith(".json")]
        if len(records) > RECORDS_MAX:
            raise SourceUnusable(f"{label} holds more than {RECORDS_MAX:,} records.")
        if sum(entry.file_size for entry in records) > UNPACKED_BYTES_MAX:
            raise SourceUnusable(f"{label} would unpack to more than {UNPACKED_BYTES_MAX // 1024**3} GiB.")
        for entry in records:
            with archive.open(entry) as stream:
                content = stream.read(RECORD_BYTES_MAX + 1)
            yield Document(f"{label}/{entry.filename}", content if len(content) <= RECORD_BYTES_MAX else None)


@contextmanager
def readable(label: str) -> Iterator[None]:
    """Around whatever unpacks: of a damaged file the reader is told so."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise SourceUnusable(f"{label} is damaged or cut short; fetch it again.") from error


def _download(address: str, path: Path) -> None:
    if urlsplit(address).scheme not in ("http", "https") or "@" in urlsplit(address).netloc:
        raise ValueError("only http and https addresses without a user or password can be read")
    request = urllib.request.Request(address, headers={"User-Agent": "holdfast"})
    deadline = time.monotonic() + DOWNLOAD_SECONDS_MAX
    with urllib.request.urlopen(request, timeout=SILENCE_SECONDS_MAX) as response, path.open("wb") as file:
        expected, received = response.headers.get("Content-Length"), 0
        while chunk := response.read(_CHUNK_BYTES):
            received += len(chunk)
            if received > DOWNLOAD_BYTES_MAX or time.monotonic() > deadline:
                raise ValueError("it is too large or too slow")
            file.write(chunk)
    if expected is not None and received != int(expected):  # reading in chunks, http.client lets a cut pass
        raise ValueError(f"the connection was cut after {received:,} of {int(expected):,} bytes")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    return str(getattr(error, "reason", error)).rstrip(".")
