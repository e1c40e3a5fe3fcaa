"""Go: go.mod, and go.sum where go.mod does not name everything."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.extraction.manifests.packages import Packages, Reading
from holdfast.extraction.manifests.source import ManifestProblem, Source, folder_of, inside, shown

BYTES_MAX = 4 * 1024 * 1024
LISTS_ALL_SINCE = (1, 17)
"""From this version on go.mod also names what is only needed indirectly."""
VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def read_mod(source: Source, path: str) -> Reading:
    """`// indirect` tells the direct ones from the others; edges are not written down anywhere."""
    packages = Packages("golang", path)
    language = (0, 0)
    required: dict[str, tuple[str, bool]] = {}
    replaced: dict[tuple[str, str], tuple[str, str]] = {}
    for verb, words, comment in _statements(_text(source, path)):
        if verb == "go" and (found := re.match(r"(\d{1,4})\.(\d{1,4})", words[0])):
            language = (int(found[1]), int(found[2]))
        elif verb == "require" and len(words) == 2:
            required[words[0]] = (words[1], not comment.startswith("indirect"))
        elif verb == "replace" and "=>" in words:
            arrow = words.index("=>")
            before, after = words[:arrow], words[arrow + 1 :]
            if before and after:
                version = before[1] if len(before) > 1 else ""
                replaced[before[0], version] = (after[0], after[1] if len(after) > 1 else "")
    for module, (version, is_direct) in required.items():
        target = replaced.get((module, version)) or replaced.get((module, "")) or (module, version)
        if target[0].startswith((".", "/")):  # a folder of this repository or this machine
            continue
        purl = packages.add(*target, "required")
        if is_direct:
            packages.direct(purl, "required")
    if language < LISTS_ALL_SINCE:
        for module, version in _only_in_sum(source, path, set(required)):
            packages.add(module, version, "required")
    return packages.reading()


def _text(source: Source, path: str) -> str:
    data = source.read(path)
    if len(data) > BYTES_MAX:
        raise ManifestProblem(shown(path), f"is larger than {BYTES_MAX // 1024**2} MiB.", "too_large")
    try:
        return data.decode("utf-8")
    except UnicodeError as error:
        raise ManifestProblem(shown(path), "is not UTF-8 text.") from error


def _statements(text: str) -> Iterator[tuple[str, list[str], str]]:
    """verb, words and comment of each line; a block `verb ( … )` gives its verb to every line inside."""
    block = ""
    for raw in text.splitlines():
        code, _, comment = raw.partition("//")
        words = [word.strip('"`') for word in code.replace("(", " ( ").split()]
        if not words:
            continue
        if block and words == [")"]:
            block = ""
        elif not block and len(words) == 2 and words[1] == "(":
            block = words[0]
        elif block:
            yield block, words, comment.strip()
        elif len(words) > 1:
            yield words[0], words[1:], comment.strip()


def _only_in_sum(source: Source, path: str, known: set[str]) -> Iterator[tuple[str, str]]:
    """The highest version of each module whose contents, and not only its go.mod, go.sum vouches for."""
    beside_it = inside(folder_of(path), "go.sum")
    if not source.exists(beside_it):
        return
    highest: dict[str, str] = {}
    for line in _text(source, beside_it).splitlines():
        words = line.split()
        if len(words) != 3 or words[1].endswith("/go.mod") or words[0] in known:
            continue
        module, version = words[0], words[1]
        if module not in highest or _order(version) > _order(highest[module]):
            highest[module] = version
    yield from highest.items()


def _order(version: str) -> tuple[int, int, int, bool, list[tuple[bool, int, str]]]:
    """Semantic versioning: a pre-release comes before its release, numbers compare as numbers and before words."""
    found = VERSION.fullmatch(version)
    if found is None or len(version) > 200:
        return (-1, 0, 0, False, [])
    parts = found[4].split(".") if found[4] else []
    release = [(not part.isascii() or not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
    return (int(found[1]), int(found[2]), int(found[3]), not parts, release)
