"""requirements.txt: pins, extras, markers, hashes, included files, constraints, and the notes of pip-compile and uv."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from holdfast.extraction.manifests.packages import Packages, Reading, fold
from holdfast.extraction.manifests.pyproject import exact_version, parse_requirement
from holdfast.extraction.manifests.source import ManifestProblem, Source, beside, folder_of, name_of, shown
from holdfast.extraction.model import Component, Problem, Scope

INCLUDED_FILES_MAX = 100
BYTES_MAX = 4 * 1024 * 1024

FILE_NAME = re.compile(r"requirements(?:[-_.][\w.-]*)?\.txt|[\w.-]*[-_.]requirements\.txt")
DEV_NAME = re.compile(r"(?:^|[-_./])(?:dev|develop|development|tests?|testing|lint|docs?|ci|typing)(?:[-_./]|$)")
OPTION = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)(?:\s*=\s*|\s+|(?<=-[rce]))(.+)")
EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
COMMENT = re.compile(r"(?:^|\s)#")


def is_requirements(path: str) -> bool:
    if "constraint" in name_of(path):
        return False
    return bool(FILE_NAME.fullmatch(name_of(path))) or (name_of(folder_of(path)) == "requirements" and path.endswith(".txt"))


@dataclass
class _Line:
    number: int
    text: str
    via: list[str] = field(default_factory=list)
    """Who wants this package, by the notes below the line."""


def read_requirements(source: Source, path: str) -> Reading:
    """A requirements file with the files it includes; each component names the file that its line stands in."""
    constraints: dict[str, str] = {}
    files = list(_files(source, path, constraints))
    components: list[Component] = []
    problems: list[Problem] = []
    for file, lines in files:
        if isinstance(lines, ManifestProblem):
            problems.append(lines.problem)
            continue
        reading = _read_file(file, lines, constraints)
        components += reading.components
        problems += reading.problems
    if len(files) == 1 and problems and isinstance(files[0][1], ManifestProblem):
        raise files[0][1]
    return Reading(components, problems, {file for file, _ in files})  # files, since a folder may hold several


def _files(source: Source, path: str, constraints: dict[str, str]) -> Iterator[tuple[str, list[_Line] | ManifestProblem]]:
    """The file and all it includes, each once; constraints are taken in on the way."""
    waiting, seen = [(path, False)], {path}
    while waiting:
        file, only_constrains = waiting.pop(0)
        try:
            lines = _lines(_decode(source.read(file), file))
        except ManifestProblem as problem:
            yield file, problem
            continue
        if only_constrains:
            constraints.update(_pins(lines))
        else:
            yield file, lines
        for line in lines:
            option = _inclusion(line)
            named = _included(file, option) if option else None
            if option and named is not None and named not in seen and len(seen) < INCLUDED_FILES_MAX:
                seen.add(named)
                waiting.append((named, only_constrains or option[1] in ("-c", "--constraint")))


def _inclusion(line: _Line) -> re.Match[str] | None:
    option = OPTION.fullmatch(line.text)
    return option if option is not None and option[1] not in ("-e", "--editable") else None


def _included(file: str, option: re.Match[str]) -> str | None:
    """The path of an included file; None for a URL, and for a path that leaves the repository."""
    named = option[2].strip("\"'")
    return None if "://" in named else beside(file, named)


def _decode(data: bytes, path: str) -> str:
    if len(data) > BYTES_MAX:
        raise ManifestProblem(shown(path), f"is larger than {BYTES_MAX // 1024**2} MiB.", "too_large")
    # PowerShell writes UTF-16, and pip reads it by its mark.
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeError as error:
        raise ManifestProblem(shown(path), "is not UTF-8 text.") from error


def _lines(content: str) -> list[_Line]:
    """Logical lines, joined at a backslash, without comments; notes of who wants a package stay with its line."""
    lines: list[_Line] = []
    parts: list[str] = []
    in_note = False
    for number, raw in enumerate(content.splitlines(), 1):
        code, *comments = COMMENT.split(raw, maxsplit=1)
        parts.append(code.rstrip().removesuffix("\\"))
        if code.rstrip().endswith("\\") and not comments:
            continue
        text = "".join(parts).strip()
        parts = []
        if text:
            lines.append(_Line(number, text))
            in_note = False
        if lines and comments and raw[:1] != "#":
            in_note = _take_note(lines[-1], comments[0], in_note)
    if text := "".join(parts).strip():
        lines.append(_Line(number, text))
    return lines


def _take_note(line: _Line, comment: str, in_note: bool) -> bool:
    """`# via flask`, `# via -r requirements.in, flask`, or `# via` with one line `#   flask` for each below."""
    words = comment.strip()
    if words == "via" or words.startswith("via "):
        listed = words.removeprefix("via").split(",")
    elif in_note and comment.startswith("   "):
        listed = [words]
    else:
        return False
    line.via += [one.strip() for one in listed if one.strip()]
    return True


def _pins(lines: list[_Line]) -> dict[str, str]:
    pins = {}
    for line in lines:
        requirement = parse_requirement(_without_options(line.text))
        if requirement is not None and (version := exact_version(requirement)):
            pins[fold(requirement.name)] = version
    return pins


def _read_file(path: str, lines: list[_Line], constraints: dict[str, str]) -> Reading:
    packages = Packages("pypi", path)
    scope: Scope = "dev" if DEV_NAME.search(path.removesuffix(".txt")) else "required"
    wanted_by: dict[str, list[str]] = {}
    unpinned = 0
    unreadable: list[int] = []
    for line in lines:
        name, version = _package_of(line.text)
        if name is None:
            if not _is_option_or_path(line.text):
                unreadable.append(line.number)
            continue
        version = version or constraints.get(fold(name), "")
        unpinned += not version
        purl = packages.add(name, version, scope)
        if purl is not None:
            wanted_by.setdefault(purl, []).extend(line.via)
    _wire(packages, wanted_by, scope)
    if any((option := _inclusion(line)) and _included(path, option) is None for line in lines):
        packages.note("include_skipped", "it includes a file from outside the repository, which is not read.")
    if unpinned:
        packages.note("unpinned", f"{unpinned} requirements name no exact version; pin them to have them checked.")
    if unreadable:
        packages.note(
            "line_unreadable", f"{len(unreadable)} lines are no requirements, the first is line {unreadable[0]}; left out."
        )
    return packages.reading()


def _package_of(text: str) -> tuple[str | None, str]:
    option = OPTION.fullmatch(text)
    if option is not None and option[1] in ("-e", "--editable"):
        text = option[2]
    if egg := EGG.search(text):
        return unquote(egg[1]), ""
    requirement = parse_requirement(_without_options(text))
    return (requirement.name, exact_version(requirement)) if requirement is not None else (None, "")


def _without_options(text: str) -> str:
    """`name==1 --hash=… ` -> `name==1`."""
    return text.split(" --", 1)[0].rstrip()


def _is_option_or_path(text: str) -> bool:
    """Options, local folders and archives, and URLs without a name: none of them names a package."""
    first = text.split(";")[0].split(" ")[0]
    return text.startswith("-") or "/" in first or first == "." or first.endswith((".whl", ".zip", ".gz"))


def _wire(packages: Packages, wanted_by: dict[str, list[str]], scope: Scope) -> None:
    """Without notes every line is a direct dependency; with them, those that a file wants and not only a package."""
    by_name: dict[str, list[str]] = {}
    for purl in wanted_by:
        by_name.setdefault(fold(unquote(purl.removeprefix("pkg:pypi/").partition("@")[0])), []).append(purl)
    has_notes = any(wanted_by.values())
    for purl, wanting in wanted_by.items():
        names = [fold(one.partition("[")[0].strip()) for one in wanting if not _is_file(one)]
        if not has_notes or any(_is_file(one) for one in wanting) or not wanting:
            packages.direct(purl, scope)
        for name in names:
            for parent in by_name.get(name, ()):
                packages.link(parent, [purl])


def _is_file(note: str) -> bool:
    """`-r requirements.in` or `name (pyproject.toml)`; `-c constraints.txt` wants nothing, it only limits."""
    return note.startswith("-r ") or note.endswith(")")
