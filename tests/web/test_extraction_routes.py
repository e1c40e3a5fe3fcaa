"""Extractions over HTTP: connected and started in one transaction, read page by page, and never another tenant's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Abort, Holdfast
from holdfast.extraction.context import Options
from holdfast.extraction.sealing import Vault
from holdfast.pipeline import StepUnavailable
from tests.support.extractions import Staged, components, finding, secret, vulnerability
from tests.web.scene import ROLES, Scene

AT = "/api/organizations/acme/projects/shop"
REPOSITORY = {"source": "https://github.com/acme/shop.git", "branch": "main", "path": "web"}
CONNECT = {"repository": REPOSITORY}
ROUTES: dict[str, tuple[tuple[int, ...], Any]] = {
    # viewer, member, admin, owner, service
    "POST /projects/shop/extraction": ((403, 202, 202, 202, 202), CONNECT),
    "POST /projects/shop/extraction/cancel": ((403, 200, 200, 200, 200), None),
    "POST /projects/shop/extraction/retry": ((403, 404, 404, 404, 404), None),
    "GET /projects/shop/extraction/runs": ((200, 200, 200, 200, 200), None),
    "GET /projects/shop/extraction/result": ((200, 200, 200, 200, 200), None),
    "GET /projects/shop/extraction/result/dependencies": ((200, 200, 200, 200, 200), None),
    "GET /projects/shop/extraction/result/export": ((200, 200, 200, 200, 200), None),
    "GET /repositories": ((200, 200, 200, 200, 200), None),
    "GET /projects/shop/repository": ((200, 200, 200, 200, 200), None),
    "PUT /projects/shop/repository": ((403, 403, 200, 200, 200), REPOSITORY),
    "DELETE /projects/shop/repository": ((403, 403, 204, 204, 204), None),
    "GET /integrations": ((403, 403, 200, 200, 200), None),
    "POST /integrations": ((403, 403, 201, 201, 201), {"provider": "gitlab", "token": "t0k3n"}),
    "GET /integrations/{integration}": ((403, 403, 200, 200, 200), None),
    "PUT /integrations/{integration}/token": ((403, 403, 200, 200, 200), {"token": "t0k3n"}),
    "DELETE /integrations/{integration}": ((403, 403, 204, 204, 204), None),
}


class Served(Scene):
    """With an extraction application beside the usual tasks."""

    def __init__(self, hf: Holdfast) -> None:
        self.asked: list[str] = []
        self.provider_is_down = False
        self.staged = Staged(hf, vault=Vault([b"k" * 32]), ask_machine=self._ask)
        super().__init__(hf)

    async def _ask(self, queue: str) -> None:
        self.asked.append(queue)
        if self.provider_is_down:
            raise ConnectionError("api.machines.example: 503")

    async def extract(self, laid: dict[str, Any] | None = None) -> None:
        await self.post("acme member", f"{AT}/extraction", CONNECT)
        self.staged.laid = self.staged.laid if laid is None else laid
        await self.work()


@pytest.fixture
async def served(hf: Holdfast) -> Served:
    scene = Served(hf)
    await hf.migrate()
    return scene


@pytest.fixture
async def light(sqlite_url: str) -> AsyncIterator[Served]:
    """On SQLite alone, where the store does not matter."""
    hf = Holdfast(sqlite_url)
    scene = Served(hf)
    await hf.migrate()
    yield scene
    await hf.aclose()


@pytest.mark.case("P5")
async def test_connecting_a_repository_queues_its_extraction_and_asks_for_a_machine(served: Served) -> None:
    """202 with job and run; the machine is asked for when all is committed."""
    answer = await served.post("acme member", f"{AT}/extraction", CONNECT)
    begun = answer.json()
    assert (answer.status_code, begun["status"], begun["warning"]) == (202, "queued", None)
    job = await served.hf.get(begun["job_id"])
    assert (job.status, job.run_id, job.project) == ("queued", begun["run_id"], "shop")
    assert job.enqueued_by is not None and job.enqueued_by.startswith("key:")
    assert answer.headers["Location"] == f"/api/jobs/{job.id}"
    assert served.asked == ["extraction"]
    assert (await served.get("acme viewer", f"{AT}/repository")).json()["status"] == "queued"


@pytest.mark.case("P5")
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "once"}])
async def test_a_machine_provider_that_is_down_is_only_a_warning(light: Served, headers: dict[str, str]) -> None:
    """The job is queued, the answer is still 202, and nothing of the provider's words is passed on."""
    light.provider_is_down = True
    answer = await light.post("acme member", f"{AT}/extraction", CONNECT, headers=headers)
    assert answer.status_code == 202
    assert "machine" in answer.json()["warning"] and "503" not in answer.text
    assert (await light.hf.get(answer.json()["job_id"])).status == "queued"


@pytest.mark.case("L12", "C30")
async def test_a_second_extraction_while_one_is_active_is_refused(served: Served) -> None:
    """409 names the job; nothing is queued, no machine asked for, and the repository stays as it was."""
    first = (await served.post("acme member", f"{AT}/extraction", CONNECT)).json()
    other = {"repository": {**REPOSITORY, "branch": "other"}}
    for body in (other, {}, None):
        answer = await served.post("acme member", f"{AT}/extraction", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "extraction_in_progress")
        assert answer.json()["job_id"] == first["job_id"]
    change = await served.call("acme admin", "PUT", f"{AT}/repository", json={**REPOSITORY, "branch": "other"})
    assert (change.status_code, change.json()["code"]) == (409, "extraction_in_progress")
    assert (await served.call("acme admin", "DELETE", f"{AT}/repository")).status_code == 409
    assert len(await served.hf.jobs()) == 1
    assert served.asked == ["extraction"]
    assert (await served.get("acme viewer", f"{AT}/repository")).json()["branch"] == "main"


async def test_the_same_request_again_is_answered_again_and_starts_nothing(served: Served) -> None:
    """The key, the repository and the job are committed together."""
    headers = {"Idempotency-Key": "connect-1"}
    first = await served.post("acme member", f"{AT}/extraction", CONNECT, headers=headers)
    again = await served.post("acme member", f"{AT}/extraction", CONNECT, headers=headers)
    assert first.status_code == again.status_code == 202
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
    assert len(await served.hf.jobs()) == 1


async def test_a_failed_extraction_is_retried_and_one_that_went_well_is_not(light: Served) -> None:
    """404 `nothing_to_retry`, also where there is no repository yet: `repository_not_connected`."""
    missing = await light.post("acme member", f"{AT}/extraction/retry")
    assert (missing.status_code, missing.json()["code"]) == (404, "repository_not_connected")
    await light.extract({"dependencies": Abort("Branch 'main' not found in repository", code="branch_not_found")})
    (run,) = (await light.get("acme viewer", f"{AT}/extraction/runs")).json()["items"]
    assert (run["number"], run["error_code"]) == (1, "branch_not_found")
    answer = await light.post("acme member", f"{AT}/extraction/retry")
    assert (answer.status_code, answer.json()["job_id"]) == (202, run["job_id"])
    light.staged.laid = {"dependencies": components("a")}
    await light.work()
    done = await light.post("acme member", f"{AT}/extraction/retry")
    assert (done.status_code, done.json()["code"]) == (404, "nothing_to_retry")


async def test_a_waiting_extraction_is_cancelled(light: Served) -> None:
    """At once, and then there is something to retry."""
    await light.post("acme member", f"{AT}/extraction", CONNECT)
    answer = await light.post("acme member", f"{AT}/extraction/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    again = await light.post("acme member", f"{AT}/extraction/cancel")
    assert again.status_code == 409


async def test_the_result_tells_numbers_gaps_and_the_difference(served: Served) -> None:
    """What was not scanned has a reason and no number; what changed since the run before is listed."""
    found = {
        "dependencies": components("a", "b"),
        "vulnerabilities": [vulnerability("GHSA-1", "pkg:npm/a@1.0.0", severity="high")],
        "findings": StepUnavailable("Static analysis skipped (Semgrep not installed)"),
        "secrets": [],
    }
    await served.extract(found)
    await served.extract({**found, "dependencies": components("b", "c")})
    told = (await served.get("acme viewer", f"{AT}/extraction/result")).json()
    assert told["repository"]["status"] == "ready"
    assert {kind: one["count"] for kind, one in told["scans"].items() if one["scanned"]} == {
        "dependencies": 2,
        "vulnerabilities": 1,
        "secrets": 0,
    }
    assert told["not_scanned"]["findings"] == "Static analysis skipped (Semgrep not installed)"
    assert told["severities"] == {"high": 1}
    difference = told["scans"]["dependencies"]["difference"]
    assert (difference["added"], difference["gone"]) == (["pkg:npm/c@1.0.0"], ["pkg:npm/a@1.0.0"])
    assert told["pending_enrichment"] == 2
    findings = (await served.get("acme viewer", f"{AT}/extraction/result/findings")).json()
    assert (findings["scanned"], findings["items"]) == (False, [])
    assert "Semgrep" in findings["reason"]


async def test_rows_come_in_pages_worst_first_and_can_be_searched(served: Served) -> None:
    """Each row once, whatever the size of the page."""
    names = [f"p{number:02}" for number in range(25)]
    severities = ["low", "critical", "medium", "unknown", "high"]
    await served.extract(
        {
            "dependencies": components(*names),
            "vulnerabilities": [
                vulnerability(f"CVE-{name}", f"pkg:npm/{name}@1.0.0", severity=severities[place % 5], aliases=[f"GHSA-{name}"])
                for place, name in enumerate(names)
            ],
            "findings": [finding("eval"), finding("exec", severity="critical", path="z.py")],
            "secrets": [secret("AWS Access Key", path="b.py"), secret("Private Key")],
        }
    )
    seen, cursor = [], ""
    while True:
        path = f"{AT}/extraction/result/vulnerabilities?limit=10{cursor}"
        page = (await served.get("acme viewer", path)).json()
        seen += [(row["severity"], row["purl"]) for row in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 25
    order = ["critical", "high", "medium", "low", "unknown"]
    assert seen == sorted(seen, key=lambda row: (order.index(row[0]), row[1]))

    async def found(query: str) -> list[str]:
        rows = (await served.get("acme viewer", f"{AT}/extraction/result/{query}")).json()["items"]
        return [row.get("purl") or f"{row.get('rule') or row.get('kind')} {row['path']}" for row in rows]

    assert await found("dependencies?q=P07") == ["pkg:npm/p07@1.0.0"]
    assert await found("vulnerabilities?q=ghsa-p11") == ["pkg:npm/p11@1.0.0"]
    assert await found("dependencies?q=100%25_") == []
    assert len(await found("vulnerabilities?severity=critical")) == 5
    assert await found("findings") == ["exec z.py", "eval a.py"]
    assert await found("secrets?q=private") == ["Private Key a.py"]
    assert (await served.get("acme viewer", f"{AT}/extraction/result/secrets?severity=high")).status_code == 422
    assert (await served.get("acme viewer", f"{AT}/extraction/result/dependencies?cursor=nonsense")).status_code == 422
    assert (await served.get("acme viewer", f"{AT}/extraction/result/passwords")).status_code == 422


async def test_everything_is_exported_as_json_sarif_and_sbom(light: Served) -> None:
    """The same rows in each; what was not scanned is null in JSON."""
    await light.extract(
        {
            "dependencies": components("a", "b"),
            "vulnerabilities": [vulnerability("GHSA-1", "pkg:npm/a@1.0.0", severity="high")],
            "secrets": [secret("Private Key")],
        }
    )
    export = f"{AT}/extraction/result/export"
    plain = (await light.get("acme viewer", export)).json()
    assert [one["name"] for one in plain["dependencies"]] == ["a", "b"]
    assert (plain["findings"], len(plain["secrets"])) == (None, 1)
    sarif = await light.get("acme viewer", f"{export}?format=sarif")
    assert sarif.headers["content-type"] == "application/sarif+json"
    assert [one["ruleId"] for one in sarif.json()["runs"][0]["results"]] == ["GHSA-1", "secret/Private Key"]
    sbom = (await light.get("acme viewer", f"{export}?format=sbom")).json()
    assert (sbom["bomFormat"], len(sbom["components"])) == ("CycloneDX", 2)


@pytest.mark.parametrize(
    "source",
    [
        "http://github.com/acme/shop",
        "file:///etc",
        "/etc",
        "ssh://git@github.com/acme/shop",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://10.1.2.3/x",
        "https://169.254.169.254/latest",
        "https://localhost/x",
        "https://git.internal/x",
        "https://user:pass@github.com/acme/shop",
        "https://[bad/x",
        "https://",
    ],
)
async def test_over_the_api_only_public_https_addresses_are_taken(light: Served, source: str) -> None:
    """Local paths, plain http, private addresses and credentials are refused before anything is written."""
    answer = await light.post("acme owner", f"{AT}/extraction", {"repository": {"source": source}})
    assert answer.status_code == 422, answer.text
    assert "pass" not in answer.json()["detail"].replace("https", "")
    assert await light.hf.jobs() == []
    assert (await light.get("acme owner", f"{AT}/repository")).status_code == 404


@pytest.mark.parametrize(
    "path", ["projects/a%00b/repository", "integrations/%00", "repositories?cursor=%00", "projects//repository"]
)
async def test_a_name_that_nothing_can_have_is_not_there(served: Served, path: str) -> None:
    """On both databases, of which one takes no zero character; also for an integration that is named in a body."""
    assert (await served.get("acme admin", f"/api/organizations/acme/{path}")).status_code == 404
    body = {"repository": {**REPOSITORY, "integration": "x\0"}}
    assert (await served.post("acme admin", f"{AT}/extraction", body)).status_code == 404


async def test_a_private_host_that_an_operator_allows_is_taken(light: Served) -> None:
    """By name, for everybody."""
    light.staged.extraction.options = Options(hosts_allowed=("git.internal",))
    body = {"repository": {"source": "https://git.internal/acme/shop"}}
    assert (await light.post("acme member", f"{AT}/extraction", body)).status_code == 202


async def test_every_route_of_the_application_is_in_the_table(light: Served) -> None:
    """A new route says who gets what before it is let in."""
    paths = light.app.openapi()["paths"]
    found = {
        f"{method.upper()} {path}".replace("{org}", "acme")
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/api/organizations")
    }
    told = {call.replace(" ", " /api/organizations/acme") for call in ROUTES}
    named = {call.replace("/shop/", "/{project}/").replace("{integration}", "{integration_id}") for call in told}
    assert {call.replace("result/dependencies", "result/{kind}") for call in named} == found


@pytest.mark.parametrize("call", sorted(ROUTES))
async def test_who_gets_what(light: Served, call: str) -> None:
    """Own: by role. Another tenant's: 404 for every role. Without a key: 401."""
    expected, body = ROUTES[call]
    method, path = call.split(" ")
    statuses = []
    for role in ROLES:
        caller = role if role == "service" else f"acme {role}"
        integration = await _things(light, path)
        at = path.format(integration=integration)
        statuses.append((await light.call(caller, method, f"/api/organizations/acme{at}", json=body)).status_code)
        await _forget(light)
    assert tuple(statuses) == expected
    integration = await _things(light, path)
    at = f"/api/organizations/acme{path.format(integration=integration)}"
    strangers = [(await light.call(f"rival {role}", method, at, json=body)).status_code for role in ROLES[:-1]]
    assert strangers == [404] * 4
    assert (await light.call("nobody", method, at, json=body)).status_code == 401


async def _things(served: Served, path: str) -> str:
    if "/shop" in path and not path.endswith("/extraction"):
        await served.post("acme admin", f"{AT}/extraction", CONNECT)
        if not path.endswith("cancel"):
            await served.work()
    if "{integration}" not in path:
        return ""
    made = await served.staged.extraction.integrations.create("acme", "gitlab", token="t0k3n")
    return made.id


async def _forget(served: Served) -> None:
    await served.post("service", f"{AT}/extraction/cancel")
    await served.call("service", "DELETE", f"{AT}/repository")


async def test_an_integrations_token_is_never_answered_and_used_by_members(served: Served) -> None:
    """An admin stores it, a member connects with it, and nobody reads it."""
    at = "/api/organizations/acme/integrations"
    given = {"provider": "github", "token": "ghp_t0ps3cret", "name": "main"}
    made = await served.post("acme admin", at, given, headers={"Idempotency-Key": "k"})
    assert (made.status_code, made.json()["host"]) == (201, "github.com")
    listed = await served.get("acme admin", at)
    assert [one["id"] for one in listed.json()["items"]] == [made.json()["id"]]
    body = {"repository": {**REPOSITORY, "integration": made.json()["id"]}}
    begun = await served.post("acme member", f"{AT}/extraction", body)
    assert begun.status_code == 202
    elsewhere = {"repository": {"source": "https://evil.example/x", "integration": made.json()["id"]}}
    other = "/api/organizations/acme/projects/other/extraction"
    assert (await served.post("acme member", other, elsewhere)).status_code == 422
    used = await served.call("acme admin", "DELETE", f"{at}/{made.json()['id']}")
    assert (used.status_code, used.json()["code"]) == (409, "integration_in_use")
    job = await served.get("acme owner", f"/api/jobs/{begun.json()['job_id']}")
    assert job.json()["args"] is None
    assert not any("ghp_t0ps3cret" in answer.text for answer in (made, listed, begun, used, job))


async def test_an_installation_is_connected_by_the_service_alone(light: Served) -> None:
    """Its number can be guessed: only who has seen GitHub's answer knows whose it is."""
    given = {"provider": "github", "installation_id": "4711"}
    at = "/api/organizations/acme/integrations"
    assert (await light.post("acme owner", at, given)).status_code == 403
    assert (await light.post("service", at, given)).status_code == 201


async def test_the_list_of_projects_shows_status_and_numbers(served: Served) -> None:
    """In pages, by name."""
    await served.extract({"dependencies": components("a"), "secrets": [secret("Private Key")]})
    await served.post("acme member", "/api/organizations/acme/projects/api/extraction", CONNECT)
    first = (await served.get("acme viewer", "/api/organizations/acme/repositories?limit=1")).json()
    assert [(one["repository"]["project"], one["repository"]["status"]) for one in first["items"]] == [("api", "queued")]
    after = f"/api/organizations/acme/repositories?limit=2&cursor={first['next_cursor']}"
    (shop,) = (await served.get("acme viewer", after)).json()["items"]
    assert (shop["repository"]["project"], shop["repository"]["status"]) == ("shop", "ready")
    assert (shop["scans"]["dependencies"]["count"], shop["scans"]["findings"]["count"]) == (1, None)


async def test_the_health_of_extractions_is_the_callers_own(light: Served) -> None:
    """Numbers of the queue; another organization's are not among them."""
    await light.post("acme member", f"{AT}/extraction", CONNECT)
    own = (await light.get("acme viewer", "/api/extraction/health")).json()
    assert (own["status"], own["waiting"], own["running"]) == ("ok", 1, 0)
    assert (await light.get("rival viewer", "/api/extraction/health")).json()["waiting"] == 0
    assert (await light.get("service", "/api/extraction/health")).json()["waiting"] == 1
    assert (await light.get("nobody", "/api/extraction/health")).status_code == 401
