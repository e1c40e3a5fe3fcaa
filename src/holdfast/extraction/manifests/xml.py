"""A small XML tree for untrusted files: a document type, and with it every entity, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from holdfast.extraction.manifests.source import ManifestProblem, shown

BYTES_MAX = 4 * 1024 * 1024
ELEMENTS_MAX = 200_000
DEPTH_MAX = 64


@dataclass(slots=True)
class Element:
    """An element without its namespace and attributes, which poms do not need."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[Element]:
        """The elements at the end of a path of names."""
        if not names:
            yield self
            return
        for child in self.children:
            if child.name == names[0]:
                yield from child.all(*names[1:])

    def value(self, *names: str) -> str:
        """The text of the first element at the end of a path, else ""."""
        return next((found.text.strip() for found in self.all(*names)), "")


class _Refused(Exception):
    pass


def parse_xml(data: bytes, path: str) -> Element:
    if len(data) > BYTES_MAX:
        raise ManifestProblem(shown(path), f"is larger than {BYTES_MAX // 1024**2} MiB.", "too_large")
    top = Element("")
    open_elements = [top]
    texts: list[list[str]] = [[]]
    count = 0

    def start(name: str, _: object) -> None:
        nonlocal count
        count += 1
        if count > ELEMENTS_MAX or len(open_elements) > DEPTH_MAX:
            raise _Refused("has too many or too deeply nested elements.")
        element = Element(name.rpartition(":")[2])
        open_elements[-1].children.append(element)
        open_elements.append(element)
        texts.append([])

    def end(_: str) -> None:
        open_elements.pop().text = "".join(texts.pop())

    def refuse_doctype(*_: object) -> None:
        raise _Refused("has a document type, which could hide entities; remove it.")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda text: texts[-1].append(text)
    parser.StartDoctypeDeclHandler = refuse_doctype
    try:
        parser.Parse(data, True)
    except _Refused as refused:
        raise ManifestProblem(shown(path), str(refused)) from None
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise ManifestProblem(shown(path), "is not valid XML.") from error
    return top
