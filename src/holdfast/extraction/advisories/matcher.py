"""Which advisories hold for which components. The cost goes with the components: each package is one lookup."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec

from holdfast.extraction.advisories.cvss import SEVERITIES
from holdfast.extraction.advisories.database import Database
from holdfast.extraction.advisories.errors import DatabaseUnavailable, NotComparable
from holdfast.extraction.advisories.feeds import cves_among
from holdfast.extraction.advisories.ranges import Affected, judge
from holdfast.extraction.advisories.records import Advisory
from holdfast.extraction.advisories.status import Status, status_of
from holdfast.extraction.advisories.versions import base_ecosystem, fold_name
from holdfast.extraction.model import Component, Vulnerability

ADVISORIES_SHOWN_MAX = 20


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """A component that may be affected: there are advisories for it, but its version or theirs cannot be compared."""

    purl: str
    code: Literal["no_version", "not_comparable"]
    message: str
    advisories: list[str]


class Matches(msgspec.Struct, kw_only=True):
    vulnerabilities: list[Vulnerability] = []
    """By purl and id."""
    unjudged: list[Unjudged] = []
    checked: int = 0
    """Components whose ecosystem the database covers."""
    not_covered: dict[str, int] = {}
    """Ecosystem without advisories in the database -> components that were not checked."""

    @property
    def warnings(self) -> list[str]:
        """What must be told beside the number found."""
        told = [
            f"Components that were not checked, for want of advisories for {ecosystem or 'their kind'}: {count:,}."
            for ecosystem, count in self.not_covered.items()
        ]
        if self.unjudged:
            told.append(f"Components with advisories that could not be judged by version: {len(self.unjudged):,}.")
        return told


class Matcher:
    """Opens the database once; raises `DatabaseUnavailable` where a scan would check nothing."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        if not self._database.ecosystems:
            self._database.close()
            raise DatabaseUnavailable(
                f"The advisory database at {path} holds no advisory that can be matched; "
                "`holdfast advisories update SOURCE` fills it."
            )

    def __enter__(self) -> Matcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def status(self, *, now: datetime | None = None) -> Status:
        return status_of(self._database, now=now)

    def match(self, components: Iterable[Component]) -> Matches:
        matches, not_covered = Matches(), Counter[str]()
        for component in {component.purl: component for component in components}.values():
            ecosystem = base_ecosystem(component.ecosystem)
            if ecosystem not in self._database.ecosystems:
                not_covered[ecosystem] += 1
                continue
            matches.checked += 1
            affected = self._database.affected(ecosystem, fold_name(ecosystem, component.name))
            if affected:
                self._match_one(component, ecosystem, affected, matches)
        matches.not_covered = dict(sorted(not_covered.items()))
        matches.vulnerabilities.sort(key=lambda found: (found.purl, found.id))
        return matches

    def _match_one(self, component: Component, ecosystem: str, rules: list[tuple[int, Affected]], matches: Matches) -> None:
        if not component.version:
            numbers = {number for number, _ in rules}
            matches.unjudged.append(self._unjudged(component, "no_version", "no lockfile says which version it is", numbers))
            return
        fixes: dict[int, list[str]] = defaultdict(list)
        unclear: dict[int, str] = {}
        for number, affected in rules:
            try:
                verdict = judge(affected, ecosystem, component.version)
            except NotComparable as error:
                unclear[number] = str(error)
                continue
            if verdict.affected:
                fixes[number] += verdict.fixed_in
        matches.vulnerabilities += self._vulnerabilities(component.purl, fixes)
        left = {number: reason for number, reason in unclear.items() if number not in fixes}
        if left:
            reason = next(iter(left.values()))
            matches.unjudged.append(self._unjudged(component, "not_comparable", reason, set(left)))

    def _vulnerabilities(self, purl: str, fixes: dict[int, list[str]]) -> list[Vulnerability]:
        """One for each alias group: the same hole told by two databases is one finding."""
        groups: dict[tuple[str, ...], list[tuple[Advisory, list[str]]]] = defaultdict(list)
        for number, fixed_in in fixes.items():
            advisory = self._database.advisory(number)
            groups[tuple(self._database.names_beside(advisory.id))].append((advisory, fixed_in))
        return [self._vulnerability(purl, names, told) for names, told in groups.items()]

    def _vulnerability(self, purl: str, names: tuple[str, ...], told: list[tuple[Advisory, list[str]]]) -> Vulnerability:
        told = sorted(told, key=lambda each: _preference(each[0].id))
        first = told[0][0]
        worst = max(
            (advisory for advisory, _ in told), key=lambda each: (SEVERITIES.index(each.severity), each.cvss_score or 0)
        )
        cves = cves_among(names)
        scores = [score for cve in cves if (score := self._database.epss(cve))]
        epss, percentile = max(scores, default=(None, None))
        return Vulnerability(
            id=first.id,
            purl=purl,
            aliases=[name for name in names if name != first.id],
            severity=worst.severity,
            cvss_score=worst.cvss_score,
            cvss_vector=worst.cvss_vector,
            fixed_in=list(dict.fromkeys(fix for _, fixed_in in told for fix in fixed_in)),
            summary=next((advisory.summary for advisory, _ in told if advisory.summary), ""),
            epss=epss,
            percentile=percentile,
            kev=any(map(self._database.is_exploited, cves)) if "kev" in self._database.origins else None,
        )

    def _unjudged(
        self, component: Component, code: Literal["no_version", "not_comparable"], why: str, numbers: set[int]
    ) -> Unjudged:
        ids = sorted(self._database.advisory(number).id for number in sorted(numbers)[:ADVISORIES_SHOWN_MAX])
        message = f"{component.purl} may be affected: {why}."
        return Unjudged(purl=component.purl, code=code, message=message, advisories=ids)


def _preference(advisory_id: str) -> tuple[bool, str]:
    """A reviewed GitHub advisory gives the group its name; the rest by letters, so that two runs agree."""
    return not advisory_id.startswith("GHSA-"), advisory_id
