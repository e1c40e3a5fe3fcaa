"""Take secrets out of text before it is stored or printed.

Every rule runs in time linear in the text: what a pattern has scanned it either takes or leaves behind for good, and
each has a plain marker that is looked for first, because most texts hold no secret at all.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.errors import ConfigError

REDACTED = "[REDACTED]"
_ENV_VALUE_CHARS_MIN = 8
_ENV_LINE_CHARS_MIN = 16
_DEPTH_MAX = 100


class _Rule(NamedTuple):
    markers: tuple[str, ...]
    """The rule is tried only where one of these is in the text."""
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = REDACTED


_ANY_CASE = re.IGNORECASE | re.ASCII


def _after_prefix(match: re.Match[str]) -> str:
    return match[1] + REDACTED


def _jwt(match: re.Match[str]) -> str:
    return REDACTED if "." in match[0] else match[0]


# A token glued to a word (`highp_…`) must be long to count; one that stands alone need not be.
_GITHUB = r"gh[oprsu]_(?:(?<![A-Za-z0-9]gh[oprsu]_)[A-Za-z0-9_]{4,}+|[A-Za-z0-9_]{20,}+)(?:[.-][A-Za-z0-9_-]++)*+"

_EXACT_RULES = (
    _Rule(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), re.compile(_GITHUB)),
    _Rule(("github_pat_",), re.compile(r"github_pat_[A-Za-z0-9_]{4,}+")),
    _Rule(("glpat-",), re.compile(r"glpat-[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]++)*+")),
    _Rule(("hf_",), re.compile(r"hf_[A-Za-z0-9_-]{30,}+")),
    _Rule(("xox", "xapp-"), re.compile(r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{4,}+")),
    _Rule(("hooks.slack.com/",), re.compile(r"(hooks\.slack\.com/[a-z]{1,20}/)[A-Za-z0-9/_-]++"), _after_prefix),
    _Rule(("AKIA", "ASIA"), re.compile(r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Z0-9])")),
    # No dot is decided after the match: a pattern that insisted on one would scan a long run again from every `eyJ`.
    _Rule(("eyJ",), re.compile(r"eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++)*+"), _jwt),
    # Without a password the user part is a login (`git@`) unless it is as long as a token.
    _Rule(
        ("://",),
        re.compile(r"""://(?:[^\s/:"'<>]*:[^\s/"'<>]*|[^\s/:"'<>@]{16,})@"""),
        f"://{REDACTED}@",
    ),
)

_FOLDED_RULES = (
    _Rule(
        ("authorization",),
        # After an unknown scheme two words go: which of them is the secret cannot be known.
        re.compile(
            r"""(authorization["']?\s{0,3}[:=]\s{0,3}["']?)(?!\[REDACTED\])"""
            r"""(?:((?:bearer|basic|token|digest|negotiate|api-?key)[ ]{1,3})[^\s"',]++|[^\s"',]++(?:[ ][^\s"',]++)?)""",
            _ANY_CASE,
        ),
        lambda match: match[1] + (match[2] or "") + REDACTED,
    ),
    _Rule(
        ("bearer",),
        re.compile(
            r"""(bearer(?:[\s:="']|%20){1,4})(?!(?:tokens?|auth[a-z]{0,12}|scheme|realm|format|error)\b)[a-z0-9._~+/=-]{4,}+""",
            _ANY_CASE,
        ),
        _after_prefix,
    ),
    # Base64 mixes cases and digits, English after the word *basic* does not.
    _Rule(
        ("basic",),
        re.compile(
            r"([Bb](?:asic|ASIC)\s{1,3})(?=[A-Za-z0-9][a-z]*[A-Z0-9])(?:[A-Za-z0-9+/]{4})+[A-Za-z0-9+/=]{4}(?![A-Za-z0-9+/=])"
        ),
        _after_prefix,
    ),
    _Rule(
        ("secret", "session"),
        re.compile(
            r"""((?:secret[_ -]?access[_ -]?key|aws[_ -]?secret[_ -]?key|session[_ -]?token)["']?\s{0,3}[:=]\s{0,3}["']?)"""
            r"""[a-z0-9/+=_%-]{8,}+""",
            _ANY_CASE,
        ),
        _after_prefix,
    ),
)

_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")

_WORKING_DIRECTORIES = ("PWD", "OLDPWD")
"""As a name `pwd` is short for password, but not for the shell."""

_user_patterns: tuple[re.Pattern[str], ...] = ()
_env_secrets: tuple[str, ...] | None = None


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by `[REDACTED]`."""
    for secret in _env_secrets if _env_secrets is not None else refresh_environment():
        if secret in text:
            text = text.replace(secret, REDACTED)
    if "-----BEGIN " in text:
        text = _without_private_keys(text)
    text = _apply(_EXACT_RULES, text, text)
    text = _apply(_FOLDED_RULES, text, text.lower())
    for pattern in _user_patterns:
        text = pattern.sub(REDACTED, text)
    return text


def _apply(rules: tuple[_Rule, ...], text: str, searched: str) -> str:
    for markers, pattern, replacement in rules:
        for marker in markers:
            if marker in searched:
                text = pattern.sub(replacement, text)
                break
    return text


def redact_value(value: Any) -> Any:
    """The same for nested dicts, lists and tuples; what stands under a key that looks secret goes as a whole."""
    return _redact_nested(value, set())


def add_pattern(regex: str | re.Pattern[str]) -> None:
    """From now on, whatever this matches is redacted too."""
    global _user_patterns
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise ConfigError(f"the redaction pattern cannot be compiled: {error}.") from None
    if pattern.search(""):
        raise ConfigError(
            "the redaction pattern matches the empty text, so it would match everywhere: make it match at least one character."
        )
    _user_patterns = (*_user_patterns, pattern)


def refresh_environment() -> tuple[str, ...]:
    """Read again which values of environment variables are secret; otherwise they are read once, at the first use."""
    global _env_secrets
    found: set[str] = set()
    for name, value in os.environ.items():
        if name in _WORKING_DIRECTORIES:
            continue
        if len(value.strip()) >= _ENV_VALUE_CHARS_MIN and looks_secret(name):
            found.add(value.strip())
            # The lines of a key are often logged one by one, or joined by a literal \n.
            lines = (line.strip() for line in value.replace("\\n", "\n").split("\n"))
            found.update(line for line in lines if len(line) >= _ENV_LINE_CHARS_MIN and not line.startswith("-----"))
    _env_secrets = tuple(sorted(found, key=lambda secret: (-len(secret), secret)))
    return _env_secrets


_SECRET_WORD = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|token|apikey|authorization|credentials?|cookie)(?:_|$)"
    r"|(?:api|access|private|secret|signing|encryption)_?key"
)
_HARMLESS_END = re.compile(r"(?:^|_)(?:file|path|dir|url|uri|name|type|count|limit|ttl|at|in|sec|seconds|policy|length)$")


@functools.lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Whether a key or a variable of this name holds a secret: `DB_PASSWORD`, `apiKey`, `x-auth-token`; not `token_count`."""
    words = re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower().strip("_")
    return _SECRET_WORD.search(words) is not None and _HARMLESS_END.search(words) is None


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
    if not isinstance(value, Mapping | list | tuple):
        return value
    if id(value) in parents or len(parents) >= _DEPTH_MAX:
        return REDACTED
    parents.add(id(value))
    clean: Any
    if isinstance(value, Mapping):
        clean = {
            redact(key) if isinstance(key, str) else key: REDACTED if _is_secret(key, item) else _redact_nested(item, parents)
            for key, item in value.items()
        }
    else:
        items = [_redact_nested(item, parents) for item in value]
        clean = tuple(items) if isinstance(value, tuple) else items
    parents.discard(id(value))
    return clean


def _is_secret(key: object, value: object) -> bool:
    """Whether something is set stays readable: `None` and `False` under a secret key give nothing away."""
    return isinstance(key, str) and value is not None and not isinstance(value, bool) and looks_secret(key)
