"""CVSS 3 base scores from their vectors, by the equations of the 3.1 specification."""

from __future__ import annotations

from typing import Literal

Severity = Literal["critical", "high", "medium", "low", "unknown"]
SEVERITIES: tuple[Severity, ...] = ("unknown", "low", "medium", "high", "critical")
"""Mildest first."""
VECTOR_CHARS_MAX = 256
_WEIGHTS = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}


def base_score(vector: str) -> float | None:
    """None for other versions of CVSS and for what is no vector."""
    if not vector.startswith(("CVSS:3.0/", "CVSS:3.1/")) or len(vector) > VECTOR_CHARS_MAX:
        return None
    given = dict(part.partition(":")[::2] for part in vector.split("/")[1:])
    try:
        weight = {metric: values[given[metric]] for metric, values in _WEIGHTS.items()}
        scope = given["S"]
        privileges = _PRIVILEGES[scope][given["PR"]]
    except KeyError:
        return None
    lost = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 6.42 * lost if scope == "U" else 7.52 * (lost - 0.029) - 3.25 * (lost - 0.02) ** 15
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _rounded_up(min((impact + exploitability) * (1.0 if scope == "U" else 1.08), 10))


def severity_of(score: float) -> Severity:
    """A score of 0 means no impact, which nobody publishes on purpose."""
    if score >= 9:
        return "critical"
    if score >= 7:
        return "high"
    if score >= 4:
        return "medium"
    return "low" if score > 0 else "unknown"


def _rounded_up(score: float) -> float:
    """To one decimal; on whole numbers, since 4.02 must not become 4.1 for the last bit of a float."""
    hundred_thousandths = round(score * 100_000)
    if hundred_thousandths % 10_000 == 0:
        return hundred_thousandths / 100_000
    return (hundred_thousandths // 10_000 + 1) / 10
