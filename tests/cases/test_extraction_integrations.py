"""Integrations: whose they are, where their tokens may go, and how a GitHub App's token is made for one run."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import jwt
import msgspec
import pytest

from holdfast import Holdfast
from holdfast.errors import Conflict, InvalidOption, NotFound
from holdfast.extraction import github_app
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import Options, Project
from holdfast.extraction.github_app import GitHubApp
from holdfast.extraction.sealing import Vault
from holdfast.pipeline import StepFailed
from tests.cases.steps import drain
from tests.support.extraction_steps import FIXTURES
from tests.support.extractions import Staged
from tests.support.git_server import TOKEN, USER, GitServer, commit
from tests.support.github import TOKEN as MINTED
from tests.support.github import FakeGitHub

OLD, NEW = b"o" * 32, b"n" * 32


@pytest.fixture(scope="module")
def one_github() -> Iterator[FakeGitHub]:
    served = FakeGitHub()
    yield served
    served.close()


@pytest.fixture
def github(one_github: FakeGitHub) -> FakeGitHub:
    one_github.mood = "well"
    one_github.asked.clear()
    return one_github


@pytest.fixture
async def staged(hf: Holdfast) -> AsyncIterator[Staged]:
    staged = Staged(hf, vault=Vault([OLD]))
    await hf.migrate()
    yield staged


async def stored(hf: Holdfast) -> str:
    """Everything that the table of integrations holds."""
    async with hf.transaction() as tx:
        table = "holdfast.extraction_integrations" if tx.store_kind == "postgres" else "holdfast_extraction_integrations"
        return str(await tx.fetch(f"SELECT * FROM {table}"))


async def test_a_token_is_sealed_and_never_shown(staged: Staged) -> None:
    """Not in the database, not in what is returned."""
    integrations = staged.extraction.integrations
    made = await integrations.create("acme", "github", token="ghp_s3cret", name="main", by="key:1")
    assert (made.host, made.has_token, made.created_by) == ("github.com", True, "key:1")
    assert "ghp_s3cret" not in repr([made, await integrations.list("acme"), await integrations.get("acme", made.id)])
    assert "ghp_s3cret" not in await stored(staged.hf)
    changed = await integrations.set_token("acme", made.id, "ghp_an0ther")
    assert changed.token_set_at is not None and made.token_set_at is not None
    assert changed.token_set_at >= made.token_set_at


async def test_no_organization_reaches_anothers_integration(staged: Staged) -> None:
    """It is not there: not to look at, not to change, not to remove, not to connect with."""
    integrations = staged.extraction.integrations
    made = await integrations.create("acme", "github", token="ghp_s3cret")
    assert await integrations.list("rival") == []
    source = Project(id="", source="https://github.com/acme/shop")
    for attempt in (
        lambda: integrations.get("rival", made.id),
        lambda: integrations.set_token("rival", made.id, "x"),
        lambda: integrations.remove("rival", made.id),
        lambda: staged.extraction.connect("rival", "shop", source, integration=made.id),
    ):
        with pytest.raises(NotFound):
            await attempt()
    assert await staged.hf.jobs() == []
    assert (await integrations.get("acme", made.id)).has_token


async def test_a_token_is_for_its_host_alone(staged: Staged) -> None:
    """Whoever may connect repositories must not have the token sent to a server of his own."""
    made = await staged.extraction.integrations.create("acme", "gitlab", token="glpat-1", host="Git.Example.org")
    for source in (
        "https://evil.example/acme/shop",
        "https://git.example.org:8443/acme/shop",
        "https://git.example.org.evil/x",
    ):
        with pytest.raises(InvalidOption, match=r"git\.example\.org"):
            await staged.extraction.connect("acme", "shop", Project(id="", source=source), integration=made.id)
    fitting = Project(id="", source="https://git.example.org/acme/shop")
    await staged.extraction.connect("acme", "shop", fitting, integration=made.id)
    repository = await staged.extraction.get("acme", "shop")
    credentials = await staged.extraction.integrations.credentials_for(repository)
    assert credentials is not None and (credentials.user, credentials.token) == ("oauth2", "glpat-1")


async def test_a_worker_without_the_github_app_fails_the_clone_with_its_sentence(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is asked to reconnect; the log names the settings that are missing."""
    extraction = Extraction(hf, Options())
    await hf.migrate()
    made = await extraction.integrations.create("acme", "github", installation_id="4711")
    source = Project(id="", source="https://github.com/acme/shop")
    await extraction.configure("acme", "shop", source, integration=made.id)
    with pytest.raises(StepFailed, match="GitHub App installation may need to be reconnected") as refused:
        await extraction.integrations.credentials_for(await extraction.get("acme", "shop"))
    assert refused.value.code == "auth_failed"
    assert "GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY are not set on this worker" in caplog.text


async def test_a_token_is_not_opened_for_a_repository_of_another_host(staged: Staged) -> None:
    """Also where the address changed after it was connected."""
    made = await staged.extraction.integrations.create("acme", "github", token="ghp_1")
    await staged.extraction.configure("acme", "shop", Project(id="", source="https://github.com/a/b"), integration=made.id)
    moved = msgspec.structs.replace(await staged.extraction.get("acme", "shop"), source="https://evil.example/a/b")
    with pytest.raises(StepFailed) as refused:
        await staged.extraction.integrations.credentials_for(moved)
    assert refused.value.code == "auth_failed"


async def test_an_installation_belongs_to_one_organization(staged: Staged) -> None:
    """Nobody connects what another one has connected."""
    integrations = staged.extraction.integrations
    await integrations.create("acme", "github", installation_id="4711")
    with pytest.raises(Conflict) as refused:
        await integrations.create("rival", "github", installation_id="4711")
    assert refused.value.code == "installation_taken"
    assert await integrations.list("rival") == []


async def test_an_integration_that_is_used_is_not_removed(staged: Staged) -> None:
    """It names the projects; afterwards it goes."""
    integrations = staged.extraction.integrations
    made = await integrations.create("acme", "github", token="ghp_1")
    source = Project(id="", source="https://github.com/acme/shop")
    await staged.extraction.configure("acme", "shop", source, integration=made.id)
    with pytest.raises(Conflict, match="shop"):
        await integrations.remove("acme", made.id)
    await staged.extraction.disconnect("acme", "shop")
    await integrations.remove("acme", made.id)
    assert await integrations.list("acme") == []


async def test_keys_are_changed_by_sealing_again(hf: Holdfast) -> None:
    """With both keys everything opens; after `reseal` the new one alone is enough."""
    staged = Staged(hf, vault=Vault([OLD]))
    await hf.migrate()
    made = await staged.extraction.integrations.create("acme", "github", token="ghp_s3cret")
    await staged.extraction.connect("acme", "shop", Project(id="", source="https://github.com/a/b"), integration=made.id)
    repository = await staged.extraction.get("acme", "shop")

    integrations = staged.extraction.integrations
    integrations._vault = Vault([NEW, OLD])
    assert (await integrations.reseal(), await integrations.reseal()) == (1, 0)
    integrations._vault = Vault([NEW])
    credentials = await integrations.credentials_for(repository)
    assert credentials is not None and credentials.token == "ghp_s3cret"
    integrations._vault = Vault([OLD])
    with pytest.raises(StepFailed, match="Authentication failed"):
        await integrations.credentials_for(repository)


@pytest.mark.parametrize(
    "given",
    [
        {"provider": "svn", "token": "t"},
        {"provider": "github"},
        {"provider": "github", "token": "t", "installation_id": "1"},
        {"provider": "gitlab", "installation_id": "1"},
        {"provider": "github", "installation_id": "../../users"},
        {"provider": "github", "token": "a b"},
        {"provider": "github", "token": "line\nbreak"},
        {"provider": "git", "token": "t"},
        {"provider": "gitlab", "token": "t", "host": "https://gitlab.com/"},
        {"provider": "gitlab", "token": "t", "user_name": "a:b"},
    ],
)
async def test_an_integration_that_cannot_work_is_refused(sqlite_url: str, given: dict[str, str]) -> None:
    """Before anything is written."""
    hf = Holdfast(sqlite_url)
    staged = Staged(hf, vault=Vault([OLD]))
    await hf.migrate()
    with pytest.raises(InvalidOption):
        await staged.extraction.integrations.create("acme", **given)  # type: ignore[arg-type]
    assert await staged.extraction.integrations.list("acme") == []
    await hf.aclose()


async def test_without_a_key_no_token_is_stored(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the variable."""
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEYS", raising=False)
    hf = Holdfast(sqlite_url)
    staged = Staged(hf)
    await hf.migrate()
    with pytest.raises(Conflict, match="HOLDFAST_ENCRYPTION_KEYS"):
        await staged.extraction.integrations.create("acme", "github", token="ghp_1")
    await hf.aclose()


# -- a GitHub App's token


async def test_a_token_is_minted_for_one_run_and_one_repository(github: FakeGitHub) -> None:
    """Signed by the App's key, short-lived, read-only, for this repository alone."""
    app = GitHubApp("12345", github.private_key.replace("\n", "\\n"), api=github.url)
    assert await app.token("4711", "shop") == MINTED
    (asked,) = github.asked
    assert asked["path"] == "/app/installations/4711/access_tokens"
    assert asked["body"] == {"repositories": ["shop"], "permissions": {"contents": "read"}}
    claims = jwt.decode(asked["authorization"].removeprefix("Bearer "), github.public_key, algorithms=["RS256"])
    assert claims["iss"] == "12345"
    assert 0 < claims["exp"] - claims["iat"] <= 600


@pytest.mark.parametrize(
    ("mood", "code"),
    [
        ("401", "auth_failed"),
        ("403", "auth_failed"),
        ("404", "auth_failed"),
        ("422", "repository_not_found"),
        ("429", "rate_limited"),
        ("limited", "rate_limited"),
        ("500", "host_unreachable"),
        ("200", "host_unreachable"),
        ("elsewhere", "host_unreachable"),
        ("garbage", "host_unreachable"),
        ("tokenless", "host_unreachable"),
        ("line break", "host_unreachable"),
        ("endless", "host_unreachable"),
        ("cut", "host_unreachable"),
        ("silent", "host_unreachable"),
    ],
)
async def test_github_misbehaves(github: FakeGitHub, mood: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way has its sentence; nobody waits for ever, and nothing is sent to where it points."""
    if mood == "silent":
        monkeypatch.setattr(github_app, "TIMEOUT_SECONDS", 2.0)
    github.mood = mood
    with pytest.raises(StepFailed) as failed:
        await GitHubApp("12345", github.private_key, api=github.url).token("4711", "shop")
    assert failed.value.code == code
    assert len(github.asked) == 1


async def test_github_cannot_be_reached_at_all(github: FakeGitHub) -> None:
    """Nobody listens there."""
    with pytest.raises(StepFailed, match="host unreachable"):
        await GitHubApp("12345", github.private_key, api="http://127.0.0.1:9").token("4711", "shop")


# -- the whole way


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    served = GitServer(tmp_path / "served")
    shutil.copytree(FIXTURES / "npm-app", served.root / "app")
    commit(served.root / "app", {})
    yield served
    served.close()


async def test_a_private_repository_is_cloned_with_the_organizations_token(
    hf: Holdfast, server: GitServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The job carries ids; the token reaches the server and stays nowhere: not in the job, its log, nor its results."""
    extraction = Extraction(hf, Options(trusted=True, semgrep="no-such-semgrep"), vault=Vault([OLD]))
    await hf.migrate()
    host = server.url.removeprefix("http://")
    made = await extraction.integrations.create("acme", "git", token=TOKEN, user_name=USER, host=host)
    source = Project(id="", source=f"{server.url}/auth/app")
    job = await extraction.connect("acme", "shop", source, integration=made.id)
    await drain(hf)
    assert (await extraction.get("acme", "shop")).status == "ready"
    lines = [str(line) for run in await hf.runs(job.id) for line in await hf.logs(run.run_id)]
    row = await hf.store.job_get(job.id)
    everything = "\n".join([*lines, str(row.as_dict()), str((await extraction.results("acme", "shop")).as_json()), caplog.text])
    assert TOKEN not in everything


async def test_an_installation_whose_token_cannot_be_minted_fails_the_clone_with_its_sentence(
    sqlite_url: str, github: FakeGitHub
) -> None:
    """No second attempt, and git was never started."""
    hf = Holdfast(sqlite_url)
    app = GitHubApp("12345", github.private_key, api=github.url)
    extraction = Extraction(hf, Options(), github=app)
    await hf.migrate()
    made = await extraction.integrations.create("acme", "github", installation_id="4711")
    source = Project(id="", source="https://github.com/acme/shop.git")
    github.mood = "404"
    job = await extraction.connect("acme", "shop", source, integration=made.id)
    await drain(hf)
    ended = await hf.get(job.id)
    assert (ended.attempt, ended.error_code) == (1, "auth_failed")
    assert ended.error_message == "Authentication failed - your GitHub App installation may need to be reconnected"
    (run,) = await extraction.runs("acme", "shop")
    assert run.outcomes["cloning"]["code"] == "auth_failed"
    assert [one["body"]["repositories"] for one in github.asked] == [["shop"]]
    await hf.aclose()
