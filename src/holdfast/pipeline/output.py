"""What a tool prints: always read, never more kept than allowed, and without the secrets it was given."""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Callable, Sequence
from typing import IO

from holdfast.redact import REDACTED

LINE_BYTES_MAX = 65_536
_READ_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def plain(text: str) -> str:
    """Without colours and other orders to a terminal."""
    return _ANSI.sub("", text) if "\x1b" in text else text


class Capture:
    """One pipe. All of it is kept up to the limit; beyond it the beginning and the end are, the middle is let go."""

    def __init__(self, bytes_max: int, secrets: Sequence[str], on_line: Callable[[str], None] | None) -> None:
        self._half = max(1, bytes_max // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._line = bytearray()
        self._secrets = secrets
        self._on_line = on_line
        self._bytes_max = 2 * self._half
        self.bytes_seen = 0

    @property
    def overflowed(self) -> bool:
        return self.bytes_seen > self._bytes_max

    def feed(self, data: bytes) -> None:
        self.bytes_seen += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]
        if self._on_line is not None:
            self._feed_lines(data, self._on_line)

    def _feed_lines(self, data: bytes, on_line: Callable[[str], None]) -> None:
        self._line += data
        *complete, rest = re.split(rb"[\r\n]+", bytes(self._line))
        self._line = bytearray(rest)
        if len(rest) > LINE_BYTES_MAX:
            complete.append(rest)
            self._line.clear()
        for line in complete:
            if line.strip():
                on_line(self._shown(line))

    def mute(self) -> None:
        """Whoever listened has failed: the rest is only kept."""
        self._on_line = None

    def end(self) -> None:
        """The last line may lack its end."""
        if self._on_line is not None and self._line.strip():
            self._on_line(self._shown(bytes(self._line)))
        self._line.clear()

    def text(self) -> str:
        if not self.overflowed:
            return self._shown(bytes(self._head + self._tail))
        head, tail = self._shown(bytes(self._head)), self._shown(bytes(self._tail[-self._half :]))
        for secret in self._secrets:  # one that the cut runs through is not recognised by its halves
            head = head[: len(head) - _overlap(head, secret)]
            tail = tail[_overlap(tail[::-1], secret[::-1]) :]
        return f"{head}\n… {self.bytes_seen - self._bytes_max} bytes left out …\n{tail}"

    def _shown(self, data: bytes) -> str:
        return masked(plain(data.decode("utf-8", "replace")), self._secrets)


def _overlap(text: str, secret: str) -> int:
    """How many characters at the end of the text are the beginning of the secret."""
    return next((size for size in range(len(secret) - 1, 0, -1) if text.endswith(secret[:size])), 0)


class Pipes:
    """Both pipes of a tool at once, so that it never waits for a reader."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, pipe: IO[bytes], capture: Capture) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, capture)

    @property
    def open(self) -> bool:
        return bool(self._selector.get_map())

    def read(self, seconds: float) -> bool:
        """Wait at most that long for something to read; False where nothing came."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            try:
                data = os.read(key.fd, _READ_BYTES)
            except BlockingIOError:
                continue
            if data:
                key.data.feed(data)
            else:
                self._close(key)
        return bool(ready)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key)
        self._selector.close()

    def _close(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.data.end()
        assert not isinstance(key.fileobj, int)
        key.fileobj.close()  # type: ignore[attr-defined]
