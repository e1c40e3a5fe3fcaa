"""What a task says becomes what both databases can hold: told apart at once, redacted and cut later, many lines together."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from holdfast import codec
from holdfast.redact import has_users_patterns, looks_secret, redact, redact_value
from holdfast.settings import Settings

NAME_CHARS_MAX = 200
TRACEBACK_CHARS_MAX = 20_000
_TRACEBACK_CHARS_LOOKED_AT = 1_000_000
TOGETHER = 64
"""Lines that are looked through in one go: where none of them holds a secret, which is nearly always, this is all it costs."""

_APART = "\n" * 8
"""No rule of ours reaches over so many line ends: what is clean together is clean alone."""
_WHOLE_MAX = 2**53
_UNCHANGING = frozenset({str, int, float, bool, type(None)})


class Said(NamedTuple):
    """A line as it was said: nothing in it can change any more, and nothing of it is redacted yet."""

    level: str
    message: str
    cut: int
    """Bytes of the message that were left out at once."""
    step: str | None
    duration_ms: Any
    metadata: dict[str, Any] | str | None
    """Plain values as they are, everything else as JSON."""
    at: float


class CutText(str):
    """The beginning of a text that was too long to be gathered."""

    cut: int

    @classmethod
    def of(cls, text: str, cut: int) -> CutText:
        made = cls(text)
        made.cut = cut
        return made


class Limits(NamedTuple):
    line_bytes: int
    metadata_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(settings.log_line_bytes_max, settings.log_metadata_bytes_max)


def said(
    level: str, message: object, step: object, duration_ms: object, metadata: dict[str, Any] | None, limits: Limits
) -> Said:
    """In the task's own time, so only what cannot wait: whatever could change is copied, whatever is huge is cut."""
    if message.__class__ is str:
        text: str = message
        cut = 0
    else:
        text, cut = shown(message), message.cut if isinstance(message, CutText) else 0
    # What stands beyond twice the limit is not kept, and must not fill the memory until it is written.
    if len(text) > 2 * limits.line_bytes:
        text, more = _beginning(text, 2 * limits.line_bytes)
        cut += more
    if step is not None:
        step = (step if step.__class__ is str else shown(step))[: 5 * NAME_CHARS_MAX]
    kept: dict[str, Any] | str | None = None
    if metadata:
        kept = metadata
        for value in metadata.values():
            if value.__class__ not in _UNCHANGING or (value.__class__ is str and len(value) > 1000):
                kept = _copied(metadata, limits.metadata_bytes)
                break
    return tuple.__new__(Said, (level, text, cut, step, duration_ms, kept, time.time()))


def _beginning(text: str, chars: int) -> tuple[str, int]:
    """The first part of a text, and how many bytes the rest has."""
    return text[:chars], sum(utf8_size(text[start : start + 1_000_000]) for start in range(chars, len(text), 1_000_000))


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def weight(line: Said) -> int:
    """About the bytes of memory that it takes."""
    metadata = line[5]
    return 250 + len(line[1]) + (0 if metadata is None else len(metadata) if metadata.__class__ is str else 300)


def sendable(line: Said, limits: Limits) -> Said:
    """As JSON can carry it."""
    metadata = line.metadata
    return line._replace(
        message=storable(line.message),
        step=None if line.step is None else storable(line.step),
        duration_ms=_duration(line.duration_ms),
        metadata=_copied(metadata, limits.metadata_bytes) if isinstance(metadata, dict) else metadata,
    )


def shown(value: object) -> str:
    """As text, also where its own `__str__` raises."""
    try:
        return str(value)
    except BaseException:
        return f"({type(value).__name__} that cannot be shown)"


def traceback_text(error: BaseException, frames: TracebackType | None) -> str:
    """Its end, cut only after it was redacted: of a secret that was cut, the rest could not be told any more."""
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:  # an exception that cannot be shown
        return type(error).__name__
    return redact(text[-_TRACEBACK_CHARS_LOOKED_AT:])[-TRACEBACK_CHARS_MAX:]


def storable(text: str) -> str:
    """Without what PostgreSQL refuses (NUL) and what is no Unicode (lone surrogates)."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def name_of(value: object) -> str:
    return storable(redact(shown(value)[: 5 * NAME_CHARS_MAX]))[:NAME_CHARS_MAX]


def cleaned(lines: Sequence[Said], limits: Limits) -> list[Said]:
    """Redacted, cut to size and storable; once per line, and most lines only together with their neighbours."""
    clean: list[Said] = []
    for start in range(0, len(lines), TOGETHER):
        some = lines[start : start + TOGETHER]
        clean += some if _nothing_to_do(some, limits) else [_clean(line, limits) for line in some]
    return clean


def _nothing_to_do(lines: Sequence[Said], limits: Limits) -> bool:
    texts: list[str] = []
    longest = limits.line_bytes // 4
    for _level, message, cut, step, duration_ms, metadata, _at in lines:
        if cut or len(message) > longest:
            return False
        texts.append(message)
        if step is not None:
            if len(step) > NAME_CHARS_MAX:
                return False
            texts.append(step)
        if duration_ms is not None and _duration(duration_ms) is not duration_ms:
            return False
        if metadata is not None and not _is_simple(metadata, texts, limits):
            return False
    joined = _APART.join(texts)
    # Whoever added a pattern may have meant the beginning or the end of a text.
    if has_users_patterns() or redact(joined) != joined or "\x00" in joined:
        return False
    return joined.isascii() or _is_unicode(joined)


def _is_simple(metadata: dict[str, Any] | str, texts: list[str], limits: Limits) -> bool:
    if metadata.__class__ is str or len(metadata) > 20:
        return False
    room = limits.metadata_bytes // 4
    for key, value in metadata.items():  # type: ignore[union-attr]
        if looks_secret(key):
            return False
        texts.append(key)
        room -= len(key) + 25
        kind = value.__class__
        if kind is str:
            texts.append(value)
            room -= len(value)
        elif (kind is int and not -_WHOLE_MAX < value < _WHOLE_MAX) or (kind is float and not math.isfinite(value)):
            return False
    return room > 0


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean(line: Said, limits: Limits) -> Said:
    return line._replace(
        message=_clipped(line.message, line.cut, limits.line_bytes),
        step=None if line.step is None else name_of(line.step),
        duration_ms=_duration(line.duration_ms),
        metadata=None if line.metadata is None else _clean_metadata(line.metadata, limits.metadata_bytes),
    )


def _duration(value: Any) -> Any:
    """As it is, or None for what is no number of milliseconds that both databases can hold."""
    return value if isinstance(value, (int, float)) and -_WHOLE_MAX < value < _WHOLE_MAX else None


def _clipped(text: str, cut: int, bytes_max: int) -> str:
    data = storable(redact(text)).encode()
    if not cut and len(data) <= bytes_max:
        return data.decode()
    if cut:  # where much was redacted, the end is near: it may be the first half of a secret
        data = data[: -(bytes_max // 4)]
    cut += utf8_size(storable(text)) - bytes_max
    return data[:bytes_max].decode("utf-8", "ignore") + f" … ({max(1, cut)} bytes cut)"


def _copied(metadata: dict[str, Any], bytes_max: int) -> dict[str, Any] | str:
    """Metadata is for people: what JSON cannot say is shown as text."""
    try:
        text = codec.encode(metadata).decode()
    except codec.NotJson:
        text = _encode({storable(key): storable(_represented(value)[: 2 * bytes_max]) for key, value in metadata.items()})
    return text if len(text) <= 8 * bytes_max else _encode(_too_large(len(text), bytes_max))


def _clean_metadata(metadata: dict[str, Any] | str, bytes_max: int) -> dict[str, Any]:
    text = metadata if isinstance(metadata, str) else _copied(metadata, bytes_max)
    clean: dict[str, Any] = redact_value(codec.decode(text))  # type: ignore[arg-type]
    size = len(msgspec.json.encode(clean))
    return clean if size <= bytes_max else _too_large(size, bytes_max)


def _too_large(size: int, bytes_max: int) -> dict[str, Any]:
    return {"cut": f"metadata of {size} bytes, {bytes_max} are kept at most"}


def _encode(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


def _represented(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"({type(value).__name__} that cannot be shown)"
