"""Take secrets out of text before it is stored or printed.

Every rule runs in time linear in the text: what a pattern has scanned it either takes or leaves behind for good, and
each has a plain marker that is looked for first, because most texts hold no secret at all.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError

REDACTED = "[REDACTED]"
_ENV_VALUE_CHARS_MIN = 8
_ENV_LINE_CHARS_MIN = 16
_DEPTH_MAX = 200
_USER_CHARS_MAX = 32_768


class _Rule(NamedTuple):
    sign: str
    """A character that stands in every match: to look for one is almost free."""
    markers: tuple[str, ...]
    """The rule is tried only where one of these is in the text."""
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = REDACTED


def _jwt(match: re.Match[str]) -> str:
    return REDACTED if "." in match[0] else match[0]


# A token glued to a word (`highp_…`) must be long to count; one that stands alone need not be.
_GITHUB = r"gh[oprsu]_(?:(?<![A-Za-z0-9]gh[oprsu]_)[A-Za-z0-9_]{4,}+|[A-Za-z0-9_]{20,}+)(?:[.-][A-Za-z0-9_-]++)*+"

_EXACT_RULES = (
    _Rule("_", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), re.compile(_GITHUB)),
    _Rule("_", ("github_pat_",), re.compile(r"github_pat_[A-Za-z0-9_]{4,}+")),
    _Rule("-", ("glpat-",), re.compile(r"glpat-[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]++)*+")),
    _Rule("_", ("hf_",), re.compile(r"hf_[A-Za-z0-9_-]{30,}+")),
    _Rule("_", ("whsec_",), re.compile(r"whsec_[A-Za-z0-9+/=_-]{8,}+")),
    _Rule("-", ("xox",), re.compile(r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{4,}+")),
    _Rule("-", ("xapp-",), re.compile(r"xapp-[A-Za-z0-9-]{4,}+")),
    _Rule("/", ("hooks.slack.com/",), re.compile(r"(hooks\.slack\.com/[a-z]{1,20}/)[A-Za-z0-9/_-]++"), rf"\1{REDACTED}"),
    _Rule("I", ("AKIA",), re.compile(r"AKIA[A-Z0-9]{16}(?![A-Z0-9])")),
    _Rule("I", ("ASIA",), re.compile(r"ASIA[A-Z0-9]{16}(?![A-Z0-9])")),
    # No dot is decided after the match: a pattern that insisted on one would scan a long run again from every `eyJ`.
    _Rule("J", ("eyJ",), re.compile(r"eyJ[A-Za-z0-9_-]{8,}+(?:\.{1,2}[A-Za-z0-9_-]++)*+"), _jwt),
    # Without a password the user part is a login (`git@`) unless it is as long as a token.
    _Rule(
        "@",
        ("://",),
        re.compile(r"""://(?:[^\s/:"'<>]*+:[^\s/"'<>]*|[^\s/:"'<>@]{16,}+)@"""),
        f"://{REDACTED}@",
    ),
)

_RULES_BY_SIGN = tuple((sign, [rule for rule in _EXACT_RULES if rule.sign == sign]) for sign in "_-/IJ@")

_QUOTE = r"""(?:\\{0,3}["']|%2[27])?"""
_IS = rf"{_QUOTE}(?:\s|%20){{0,3}}(?:[:=]|%3[ad])(?:\s|%20){{0,3}}{_QUOTE}"
_SCHEME = r"(?:bearer|basic|token|digest|negotiate|api-?key)(?: |%20){1,3}"
_WORD = r"""[^\s"',\\]++(?:\\(?!["'])[^\s"',\\]*+)*+"""
_NEW = r"(?!\[redacted\])"
_SECRET_KEY = r"secret[_ -]?(?:access[_ -]?)?key"
_SESSION_TOKEN = r"session[_ -]?token"
_NO_NAME = rf"(?![a-z]{{0,10}}[_-]?(?:{_SECRET_KEY}|{_SESSION_TOKEN}){_IS})"
"""An empty value: what follows is the name of the next one."""

_FOLDED_RULES = (
    # After an unknown scheme two words go: which of them is the secret cannot be known. The header's own name is neither.
    (
        "authorization",
        re.compile(
            rf"authorization{_IS}(?:{_SCHEME}{_NEW}({_WORD})"
            rf"|{_NEW}((?!authorization|{_SCHEME}\[redacted\]){_WORD}(?: (?!authorization){_WORD})?))"
        ),
    ),
    (
        "bearer",
        re.compile(
            r"""bearer[\s:="'\\%20]{1,4}+(?!(?:bearer|tokens?|auth[a-z]{0,12}|scheme|realm|format|error)\b)([a-z0-9._~+/=-]{4,}+)"""
        ),
    ),
    ("secret", re.compile(rf"{_SECRET_KEY}{_IS}{_NO_NAME}([a-z0-9/+=_%-]{{8,}}+)")),
    ("session", re.compile(rf"{_SESSION_TOKEN}{_IS}{_NO_NAME}([a-z0-9/+=_%-]{{8,}}+)")),
    # A URL inside another one's query.
    (
        "%3a%2f%2f",
        re.compile(rf"""%3a%2f%2f{_NEW}((?:(?!%2f|%3a)[^\s/&"'<>])*+%3a(?:(?!%2f)[^\s/&"'<>])*)%40"""),
    ),
)
"""A marker and a pattern whose group goes, both for text in lower case: to ignore case while searching is ten times as slow."""

# Base64 mixes cases and digits, English after the word *basic* does not.
_BASIC = re.compile(
    r"[Bb](?:asic|ASIC)(?:\s|%20){1,3}(?=[A-Za-z0-9][a-z]*+[A-Z0-9])"
    r"((?:[A-Za-z0-9+/]{4}){1,}+(?:(?<=[A-Za-z0-9+/]{8})|[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=))(?![A-Za-z0-9+/=])"
)

_KEY_BEGIN = re.compile(
    r"-----BEGIN(?:[ +]|%20)(?:[A-Z0-9]{2,12}+(?<!PRIVATE)(?:[ +]|%20)){0,4}+PRIVATE(?:[ +]|%20)KEY[A-Z +%0-9]{0,12}-----"
)
_KEY_END = re.compile(r"-----END[A-Z0-9 +%]{0,60}-----")

_WORKING_DIRECTORIES = ("PWD", "OLDPWD")
"""As a name `pwd` is short for password, but not for the shell."""

_user_patterns: tuple[re.Pattern[str], ...] = ()
_env_secrets: tuple[str, ...] | None = None


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by `[REDACTED]`."""
    for secret in _env_secrets if _env_secrets is not None else refresh_environment():
        if secret in text:
            text = text.replace(secret, REDACTED)
    if "-----BEGIN" in text:
        text = _without_private_keys(text)
    for sign, rules in _RULES_BY_SIGN:
        if sign in text:
            text = _apply(rules, text)
    # All of them look at the same text: what one of them takes may be the word by which another one knows the secret behind it.
    lower = _lower(text)
    spans = _spans(_BASIC, text) if "basic" in lower else []
    for marker, pattern in _FOLDED_RULES:
        if marker in lower:
            spans += _spans(pattern, lower)
    if spans:
        text = _without(spans, text)
    for pattern in _user_patterns:
        text = _without_users_own(pattern, text)
    return text


def _apply(rules: list[_Rule], text: str) -> str:
    for _, markers, pattern, replacement in rules:
        for marker in markers:
            if marker in text:
                text = pattern.sub(replacement, text)
                break
    return text


def _lower(text: str) -> str:
    """ASCII letters in lower case, every character in its place: `str.lower` makes two of some, and is slow outside ASCII."""
    return text.lower() if text.isascii() else text.encode("latin-1", "replace").lower().decode("latin-1")


def _spans(pattern: re.Pattern[str], searched: str) -> list[tuple[int, int]]:
    return [match.span(match.lastindex or 0) for match in pattern.finditer(searched)]


def _without(spans: list[tuple[int, int]], text: str) -> str:
    parts = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            parts.append(text[position:start])
        position = max(position, end)
    return REDACTED.join((*parts, text[position:]))


def redact_value(value: Any) -> Any:
    """The same for nested dicts, lists and tuples; what stands under a key that looks secret goes as a whole."""
    try:
        return _redact_nested(value, set())
    except RecursionError:  # called where the stack is almost used up
        return REDACTED


def redact_json(data: bytes) -> bytes:
    """The same for JSON, as it is where there is nothing to hide, which is seen without reading it."""
    text = data.decode()
    if "\\" not in text and not _may_name_a_secret(_lower(text)) and redact(text) == text:
        return data
    value = msgspec.json.decode(data)
    clean = redact_value(value)
    return data if clean == value else msgspec.json.encode(clean)


def has_users_patterns() -> bool:
    return bool(_user_patterns)


def add_pattern(regex: str | re.Pattern[str]) -> None:
    """From now on, whatever this matches is redacted too, in this whole process."""
    global _user_patterns
    pattern = checked_pattern(regex)
    if pattern not in _user_patterns:
        _user_patterns = (*_user_patterns, pattern)


def checked_pattern(regex: str | re.Pattern[str]) -> re.Pattern[str]:
    """Compiled, or refused where it cannot work."""
    try:
        pattern = re.compile(regex)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(f"the redaction pattern cannot be compiled: {error}.") from None
    if not isinstance(pattern.pattern, str):
        raise ConfigError("the redaction pattern must match text, not bytes: leave out the b before its quotes.")
    if pattern.search(""):
        raise ConfigError(
            "the redaction pattern matches the empty text, so it would match everywhere: make it match at least one character."
        )
    if pattern.sub(lambda _: REDACTED, REDACTED) != REDACTED:
        raise ConfigError(f"the redaction pattern matches a part of {REDACTED} itself: make it more exact.")
    return pattern


def _without_users_own(pattern: re.Pattern[str], text: str) -> str:
    """In pieces that end with a line, where they can: how long somebody else's pattern takes is not in our hands."""
    if len(text) <= _USER_CHARS_MAX:
        return pattern.sub(lambda _: REDACTED, text)
    parts = []
    position = 0
    while position < len(text):
        end = position + _USER_CHARS_MAX
        if end < len(text):
            line_end = text.rfind("\n", position, end)
            end = (line_end if line_end >= 0 else text.rfind(" ", position, end)) + 1 or end
        parts.append(pattern.sub(lambda _: REDACTED, text[position:end]))
        position = end
    return "".join(parts)


def refresh_environment() -> tuple[str, ...]:
    """Read again which values of environment variables are secret; otherwise they are read once, at the first use."""
    global _env_secrets
    found: set[str] = set()
    for name, value in os.environ.items():
        if name in _WORKING_DIRECTORIES:
            continue
        if "://" in value and "@" in value:
            found.update(_password_of(value.strip()))
        if len(value.strip()) >= _ENV_VALUE_CHARS_MIN and (looks_secret(name) or name.endswith("_PASS")):
            found.add(value.strip())
            # The lines of a key are often logged one by one, or joined by a literal \n.
            lines = (line.strip() for line in value.replace("\\n", "\n").split("\n"))
            found.update(line for line in lines if len(line) >= _ENV_LINE_CHARS_MIN and not line.startswith("-----"))
    spellings = {spelling for secret in found for spelling in _spellings(secret)}
    _env_secrets = tuple(sorted(spellings, key=lambda secret: (-len(secret), secret)))
    return _env_secrets


def _password_of(url: str) -> list[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return []
    return [found for found in (password, unquote(password)) if len(found) >= _ENV_VALUE_CHARS_MIN]


def _spellings(secret: str) -> set[str]:
    """As it stands, in JSON, in `repr`, and in a URL."""
    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    try:
        return {secret, *escaped, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    except UnicodeEncodeError:  # a value that is no UTF-8
        return {secret, *escaped}


_SECRET_WORD = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|token|apikey|authorization|credentials?|cookie)(?:_|$)"
    r"|(?:api|access|private|secret|signing|encryption)_?key"
)
_HARMLESS_END = re.compile(r"(?:^|_)(?:file|path|dir|url|uri|name|type|count|limit|ttl|at|in|sec|seconds|policy|length)$")
_SECRET_SIGNS = ("passw", "passphrase", "pwd", "secret", "token", "authorization", "credential", "cookie")
_SECRET_KEY_SIGN = re.compile(r"(?:api|access|private|signing|encryption)[^a-z0-9]*+key")


@functools.lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Whether a key or a variable of this name holds a secret: `DB_PASSWORD`, `apiKey`, `x-auth-token`; not `token_count`."""
    words = re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower().strip("_")
    return _SECRET_WORD.search(words) is not None and _HARMLESS_END.search(words) is None


def _may_name_a_secret(lower: str) -> bool:
    """Whether any part of a text could be a name that looks secret."""
    for sign in _SECRET_SIGNS:  # `any` takes three times as long
        if sign in lower:
            return True
    return "key" in lower and _SECRET_KEY_SIGN.search(lower) is not None


def _without_private_keys(text: str) -> str:
    parts = []
    position = 0
    while begin := _KEY_BEGIN.search(text, position):
        end = _KEY_END.search(text, begin.end())
        parts += [text[position : begin.start()], REDACTED]
        # A key that was cut off has no end: then everything after its beginning may be key.
        position = end.end() if end else len(text)
    return "".join((*parts, text[position:]))


def _redact_nested(value: Any, parents: set[int]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return REDACTED if _env_secrets and str(value) in _env_secrets else value
    if not isinstance(value, Mapping | list | tuple):
        return value
    if id(value) in parents or len(parents) >= _DEPTH_MAX:
        return REDACTED
    parents.add(id(value))
    clean: Any
    if isinstance(value, Mapping):
        clean = {}
        for key, item in value.items():
            name = redact(key) if isinstance(key, str) else key
            clean[name] = REDACTED if _is_secret(key, item) else _redact_nested(item, parents)
    else:
        clean = []
        for item in value:
            clean.append(_redact_nested(item, parents))
        clean = tuple(clean) if isinstance(value, tuple) else clean
    parents.discard(id(value))
    return clean


def _is_secret(key: object, value: object) -> bool:
    """Whether something is set stays readable: `None` and `False` under a secret key give nothing away."""
    return isinstance(key, str) and value is not None and not isinstance(value, bool) and looks_secret(key)
