"""An extraction application whose pipeline keeps what a test lays out, instead of looking for it in a repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from holdfast import Holdfast
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import ExtractionContext, Project
from holdfast.extraction.model import Component, Finding, Inventory, Secret, Vulnerability
from holdfast.pipeline import Done, Pipeline, Step

SCANNERS = {"vulnerabilities": "vuln_scan", "findings": "semgrep", "secrets": "trufflehog", "reports": "uploading"}
REPOSITORY = Project(id="", source="https://github.com/acme/shop.git", branch="main", path="web")

Laid = Mapping[str, Any]
"""Kind -> rows, or the exception that its step raises; a kind that is left out has no step."""


def components(*names: str) -> list[Component]:
    """`left-pad` and the like, each of version 1.0.0 and in need of the next one."""
    purls = [f"pkg:npm/{name}@1.0.0" for name in names]
    return [
        Component(
            purl=purl,
            name=name,
            version="1.0.0",
            ecosystem="npm",
            direct=[True, False, None][place % 3],
            manifest="package-lock.json",
            depends_on=purls[place + 1 : place + 2],
        )
        for place, (name, purl) in enumerate(zip(names, purls, strict=True))
    ]


def vulnerability(advisory: str, purl: str, **more: Any) -> Vulnerability:
    return Vulnerability(id=advisory, purl=purl, **more)


def finding(rule: str, **more: Any) -> Finding:
    given: dict[str, Any] = {"path": "a.py", "line": 3, "severity": "high", "message": "Do not", "fingerprint": rule}
    return Finding(rule=rule, **{**given, **more})


def secret(kind: str, **more: Any) -> Secret:
    given: dict[str, Any] = {"path": "a.py", "line": 3, "fingerprint": kind}
    return Secret(kind=kind, **{**given, **more})


class Staged:
    """`staged.laid` is what the next extraction finds, for all projects or by the name of a branch."""

    def __init__(self, hf: Holdfast, **parts: Any) -> None:
        self.hf = hf
        self.laid: Laid = {"dependencies": components("a", "b")}
        self.by_branch: dict[str, Laid] = {}
        self.before: Callable[[ExtractionContext], Awaitable[None]] | None = None
        steps = [Step("deps_sync", self._keep("dependencies"))]
        steps += [Step(step, self._keep(kind), critical=False) for kind, step in SCANNERS.items()]
        self.extraction = Extraction(hf, parts.pop("options", None), pipeline=Pipeline(steps), **parts)

    def _keep(self, kind: str) -> Callable[[ExtractionContext], Awaitable[Done]]:
        async def keep(context: ExtractionContext) -> Done:
            if self.before is not None and kind == "dependencies":
                await self.before(context)
            laid = self.by_branch.get(context.project.branch or "", self.laid)
            await _keep(context, kind, laid)
            return Done("kept")

        return keep

    async def connect(self, project: str = "shop", *, tenant: str = "acme", branch: str = "main") -> Any:
        given = Project(id="", source=REPOSITORY.source, branch=branch, path=REPOSITORY.path)
        return await self.extraction.connect(tenant, project, given)

    async def work(self) -> None:
        await self.hf.run_worker(exit_when_idle=0.0)

    async def extract(self, laid: Laid | None = None) -> None:
        """Once more, to the end."""
        self.laid = self.laid if laid is None else laid
        await self.extraction.start("acme", "shop")
        await self.work()

    async def purls(self) -> list[str]:
        found = (await self.extraction.results("acme", "shop")).dependencies
        return [one.name for one in found or []]


async def _keep(context: ExtractionContext, kind: str, laid: Laid) -> None:
    rows: Sequence[Any] | Exception | None = laid.get(kind)
    if isinstance(rows, Exception):
        raise rows
    if rows is None:
        return
    assert context.keeper is not None
    if kind == "dependencies":
        await context.keeper.save_dependencies(Inventory(components=list(rows)))
    else:
        await context.keeper.save_scan(kind, rows)  # type: ignore[arg-type]
