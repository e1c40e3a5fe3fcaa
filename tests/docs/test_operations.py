"""What is shipped for operating Holdfast names only what exists: metrics, alerts, the board, the runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import tally
from holdfast.web import metrics

ROOT = Path(__file__).parents[2]
RUNBOOK = "docs/operations/runbook.md"
NAME = re.compile(r"\bholdfast_[a-z_]+")
SERIES = (*metrics.DISTRIBUTIONS, "holdfast_http_request_seconds")
WRITTEN = metrics.NAMES | {f"{name}_{part}" for name in SERIES for part in ("bucket", "count", "sum")}


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(text_of("deploy/prometheus/alerts.yml"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text_of("deploy/grafana/holdfast.json"))["panels"]
    return found


def anchors(page: str) -> set[str]:
    return {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)}


def balanced(expression: str) -> bool:
    return all(expression.count(opened) == expression.count(closed) for opened, closed in ("()", "[]", "{}"))


def test_the_reference_lists_every_metric_and_no_other() -> None:
    """With its labels and its meaning, as the code has them."""
    page = text_of("docs/reference/metrics.md")
    tables = [
        metrics.GAUGES,
        metrics.OWN,
        {n: row[1:] for n, row in {**metrics.COUNTERS, **metrics.MACHINE_COUNTERS, **metrics.DISTRIBUTIONS}.items()},
    ]
    wanted = {
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for table in tables
        for name, (text, labels) in table.items()
    }
    assert wanted == {line for line in page.splitlines() if line.startswith("| `holdfast_")}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_exist_and_says_what_to_do(rule: dict[str, Any]) -> None:
    """Its runbook is a section that is there."""
    named = set(NAME.findall(rule["expr"]))
    assert named and named <= WRITTEN and balanced(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (page, anchor in anchors(text_of(RUNBOOK))) == (RUNBOOK, True)


def test_every_section_of_the_runbook_has_its_alert() -> None:
    """A section that nothing points at is out of date."""
    assert anchors(text_of(RUNBOOK)) == {rule["annotations"]["runbook"].partition("#")[2] for rule in rules()}


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_shows_metrics_that_exist(panel: dict[str, Any]) -> None:
    """Each of its questions names at least one."""
    for target in panel["targets"]:
        named = set(NAME.findall(target["expr"]))
        assert named and named <= WRITTEN and balanced(target["expr"])


def test_no_two_panels_lie_on_each_other() -> None:
    """Each has a number and a place of its own."""
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})


def test_every_counter_of_a_worker_reaches_prometheus() -> None:
    """A number that is counted and never shown is a mistake; one that is shown and never counted is another."""
    shown = {row[0] for row in (*metrics.COUNTERS.values(), *metrics.DISTRIBUTIONS.values())}
    assert shown == {*tally.COUNTERS, *tally.HISTOGRAMS}
