"""The dashboard's pages of extractions: who gets which, what they show and never show, what they do and write down."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast import Abort
from holdfast.extraction import integration_pages, page_actions, pages
from holdfast.pipeline import StepUnavailable
from tests.support.extraction_pages import AFTER, NO_SEMGREP, extracted_twice, packages
from tests.support.extractions import components, finding, secret, vulnerability
from tests.web.extraction_scene import TABLE, TOKEN, Shown
from tests.web.scene import ROLES
from tests.web.test_dashboard_actions import said

GITHUB_TOKEN = "ghp_" + "x" * 36
HOSTILE = "<img src=x onerror=alert(1)>\"'&"


# -- who gets what -----------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_table() -> None:
    """A new page says who gets what before it is let in."""
    groups = (pages.pages, page_actions.pages, integration_pages.pages)
    assert {f"{route.method} {route.path}" for group in groups for route in group.routes} == set(TABLE)


class _Things(NamedTuple):
    tenant: str
    integration: str


async def _set_up(shown: Shown, tenant: str) -> _Things:
    await shown.hf.tenants.set(tenant, plan="pro")
    await shown.staged.connect("shop", tenant=tenant)
    made = await shown.staged.extraction.integrations.create(tenant, "gitlab", token=TOKEN)
    return _Things(tenant, made.id)


async def _ask(shown: Shown, who: str, call: str, things: _Things, no: int) -> int:
    method, path = call.split(" ")
    asked = {"id": "shop", "kind": "dependencies", "tenant": things.tenant}
    form = {name: value.format(no=no, integration=things.integration) for name, value in (TABLE[call].form or {}).items()}
    more = {"data": form} if method == "POST" else {}
    return (await shown.call(who, method, path, params=asked, **more)).status_code


async def test_who_gets_which_page(shown: Shown) -> None:
    """Own and foreign, for every role: what is not offered is refused all the same, and a question does nothing."""
    own, foreign = await _set_up(shown, "acme"), await _set_up(shown, "other")
    await shown.work()
    wrong = []
    for no, (call, row) in enumerate(TABLE.items()):
        for things, expected in ((own, row.own), (foreign, row.foreign)):
            for position, role in enumerate(ROLES):
                who = "service" if role == "service" else f"acme {role}"
                status = await _ask(shown, who, call, things, no * 100 + position)
                if expected is not None and status != expected[position]:
                    wrong.append(f"{call} of {things.tenant} by {who}: {status} instead of {expected[position]}")
    assert wrong == []
    for tenant in ("acme", "other"):
        assert (await shown.staged.extraction.get(tenant, "shop")).status == "ready"


async def test_another_organizations_project_is_not_there(shown: Shown) -> None:
    """Not by its name either, whatever is asked of it."""
    await shown.staged.connect("theirs", tenant="other")
    for call, row in TABLE.items():
        method, path = call.split(" ")
        if path.startswith("/extraction/") and path != "/extraction/connect":
            what = {"data": {**(row.form or {}), "id": "theirs"}} if method == "POST" else {}
            answer = await shown.call("acme owner", method, path, params={"id": "theirs", "kind": "secrets"}, **what)
            assert answer.status_code == 404, call
    assert "theirs" not in (await shown.page("/extraction", "acme owner")).text


OFFERS = {
    "viewer": set(),
    "member": {"/extraction/start", "/extraction/connect"},
    "admin": {"/extraction/start", "/extraction/connect", "/extraction/disconnect", "save only"},
}


@pytest.mark.parametrize("role", OFFERS)
async def test_only_what_one_may_do_is_offered(shown: Shown, role: str) -> None:
    """On the settings of a project that has ended, and in the navigation."""
    await shown.extract({"dependencies": components("a")})
    text = (await shown.page("/extraction/settings", f"acme {role}")).text
    offered = {path for path in TABLE_PATHS if f'action="{path}"' in text} | (
        {"save only"} if 'value="save"' in text else set()
    )
    assert offered == OFFERS[role]
    assert ('href="/integrations"' in text) == (role == "admin")
    assert 'href="/extraction"' in text


TABLE_PATHS = [call.split(" ")[1] for call in TABLE if call.startswith("POST")]


async def test_the_service_role_chooses_an_organization(shown: Shown) -> None:
    """Those with repositories are listed, also where nobody has made them known; each link keeps the choice."""
    assert "Which organization?" in (await shown.get("service", "/extraction")).text
    await shown.extract({"dependencies": components("a")})
    for path in ("/extraction", "/integrations"):
        assert f'href="{path}?tenant=acme"' in (await shown.get("service", path)).text
    text = (await shown.get("service", "/extraction?tenant=acme")).text
    assert 'href="/extraction/project?tenant=acme&amp;id=shop"' in text


# -- what is shown -----------------------------------------------------------------------------------------------------


async def test_what_two_runs_found_is_shown(both: Shown) -> None:
    """Numbers, the difference to the run before, what was not scanned and why; runs lead to their jobs' logs."""
    await extracted_twice(both.staged)
    text = said(await both.page("/extraction/project"))
    for words in (
        "3 vulnerabilities run 2 · 2 new · 1 fixed",
        "7 dependencies run 2 · 2 added · 1 removed",
        "not scanned code findings",
        f"Code findings : {NO_SEMGREP}",
        "− fixed GHSA-old in pkg:npm/left-pad",
        "+ added pkg:npm/debug@2.6.9",
        "1 critical 1 high 1 medium",
    ):
        assert words in text
    job_id = (await both.staged.extraction.get("acme", "shop")).job_id
    for path in ("/extraction/project", "/extraction/runs"):
        assert f'href="/jobs/{job_id}"' in (await both.page(path)).text
    listed = said(await both.page("/extraction"))
    assert "ready shop shop main 3 1 critical 1 high 7 not scanned 2" in listed


async def test_vulnerabilities_come_worst_first_with_what_helps_to_judge(both: Shown) -> None:
    """Severity, then known to be exploited, then likelihood; unknown is not no."""
    more = [
        vulnerability("LOW-ODDS", "pkg:npm/a@1", severity="critical", epss=0.1, kev=False),
        vulnerability("HIGH-ODDS", "pkg:npm/z@1", severity="critical", epss=0.9),
    ]
    await both.extract({**AFTER, "vulnerabilities": [*AFTER["vulnerabilities"], *more]})
    text = said(await both.page("/extraction/rows", kind="vulnerabilities"))
    ids = ["GHSA-xvch-5gv4-984h", "HIGH-ODDS", "LOW-ODDS", "GHSA-35jh-r3h4-6jhm", "GHSA-semver"]
    assert [text.index(one) for one in ids] == sorted(text.index(one) for one in ids)
    assert "pkg:npm/minimist@1.2.0 1.2.6 40.0 % yes (KEV)" in text
    assert "pkg:npm/semver@7.3.2 no fix known unknown unknown" in text
    high = said(await both.page("/extraction/rows", kind="vulnerabilities", severity="high"))
    assert "lodash" in high and "minimist" not in high
    found = said(await both.page("/extraction/rows", kind="vulnerabilities", q="cve-2021-44906"))
    assert "minimist" in found and "lodash" not in found


async def test_dependencies_are_searched_and_paged_by_address(shown: Shown) -> None:
    """Fifty to a page; what a registry has not told is pending; a search that finds nothing says so."""
    many = packages("lodash@4.17.15", "debug@2.6.9", *(f"p{number:03}@1.0.0" for number in range(60)))
    await shown.extract({"dependencies": many})
    first = await shown.page("/extraction/rows", kind="dependencies")
    assert "p047" in first.text and "p048" not in first.text
    assert "lodash 4.17.15 not the newest npm direct MIT" in said(first)
    assert "debug 2.6.9 npm direct pending enrichment" in said(first)
    following = first.text.split('rel="next"')[0].rpartition('href="')[2].rstrip('" ').replace("&amp;", "&")
    second = (await shown.get("acme viewer", following)).text
    assert "p048" in second and "p059" in second and "lodash" not in second
    found = (await shown.page("/extraction/rows", kind="dependencies", q="P05")).text
    assert "p050" in found and "p049" not in found and 'value="P05"' in found
    assert "None matches" in (await shown.page("/extraction/rows", kind="dependencies", q="nothing-like-it")).text


@pytest.mark.parametrize("kind", ["vulnerabilities", "findings", "secrets"])
async def test_not_scanned_is_never_shown_as_nothing_found(shown: Shown, kind: str) -> None:
    """With the reason where one was given; nothing found, by contrast, says who has looked."""
    await shown.extract({**AFTER, kind: StepUnavailable("The tool crashed: no report")})
    text = said(await shown.page("/extraction/rows", kind=kind))
    assert "not scanned" in text and "The tool crashed: no report" in text
    assert "None found" not in text
    await shown.extract({**AFTER, kind: []})
    assert "None found Run 2 has looked" in said(await shown.page("/extraction/rows", kind=kind))


async def test_secrets_are_masked_and_findings_have_file_and_line(shown: Shown) -> None:
    """Kind and place of a secret, never more; a rule's message with what it quoted taken out."""
    quoted = finding("python.eval", path="app/x.py", line=41, message=f"Found {GITHUB_TOKEN} in a call")
    await shown.extract({**AFTER, "findings": [quoted], "secrets": [secret("AWS Access Key", path="deploy.env", line=3)]})
    secrets = await shown.page("/extraction/rows", kind="secrets")
    assert "AWS Access Key •••••••• not shown deploy.env:3 unknown" in said(secrets)
    findings = await shown.page("/extraction/rows", kind="findings")
    assert "python.eval" in findings.text and "app/x.py:41" in findings.text
    assert "Found [REDACTED] in a call" in findings.text and GITHUB_TOKEN not in findings.text


async def test_hostile_names_are_shown_as_text(shown: Shown) -> None:
    """Whatever a repository calls its packages, files, branches and projects."""
    await shown.staged.connect(HOSTILE, branch=HOSTILE)
    shown.staged.laid = {
        "dependencies": packages(f"{HOSTILE}@1"),
        "vulnerabilities": [
            vulnerability(HOSTILE, f"pkg:npm/{HOSTILE}@1", summary=HOSTILE, aliases=[HOSTILE], fixed_in=[HOSTILE])
        ],
        "findings": [finding(HOSTILE, path=HOSTILE, message=HOSTILE, cwes=[HOSTILE])],
        "secrets": [secret(HOSTILE, path=HOSTILE)],
    }
    await shown.work()
    paths = ["/extraction", "/extraction/project", "/extraction/runs", "/extraction/settings"]
    asked = [(path, {}) for path in paths] + [("/extraction/rows", {"kind": kind, "q": "img"}) for kind in pages.TITLES]
    for path, more in asked:
        text = (await shown.page(path, "acme admin", **{"id": HOSTILE, **more})).text
        assert "<img" not in text, path
        assert "&lt;img src=x onerror=alert(1)&gt;" in text, path


async def test_a_failed_extraction_tells_why_and_keeps_what_was_found(shown: Shown) -> None:
    """Also in the list of runs."""
    await shown.extract(AFTER)
    await shown.extract({"dependencies": Abort("Branch 'main' not found in repository", code="no_branch")})
    page = await shown.page("/extraction/project", "acme member")
    text = said(page)
    assert "error" in text and "Branch 'main' not found in repository" in text and "3 vulnerabilities run 1" in text
    assert 'action="/extraction/retry"' in page.text
    assert "2 failed Branch 'main' not found in repository" in said(await shown.page("/extraction/runs"))


async def test_exports_lead_to_files(shown: Shown) -> None:
    """The links of the page work with what the page was opened with."""
    await shown.extract(AFTER)
    text = (await shown.page("/extraction/project")).text
    for format in ("json", "sarif", "sbom"):
        address = f"/api/organizations/acme/projects/shop/extraction/result/export?format={format}"
        assert f'href="{address}"' in text
        assert (await shown.get("acme viewer", address)).status_code == 200


async def test_no_repository_yet_teaches(shown: Shown) -> None:
    """An empty list says what would fill it, to each what he can do."""
    assert "A member of acme can connect one" in said(await shown.page("/extraction"))
    assert "Connect and extract" in said(await shown.page("/extraction", "acme member"))
