"""Cloning from a real `git http-backend`: what people read for each failure, and that no token and no folder stays."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import State
from holdfast.extraction.context import Credentials, ExtractionContext, Options, Project
from holdfast.extraction.steps.cloning import FAILURES
from holdfast.pipeline import Done, Step, ToolFailed, ToolResult
from tests.support.extraction_steps import FIXTURES, Ran, program, run_steps, step_named
from tests.support.git_server import TOKEN, USER, GitServer, commit

UNREACHABLE = "Repository host unreachable - try again later"
RECONNECT = "Authentication failed - reconnect your 127.0.0.1 integration in Organization Settings"
EMPTY = "Repository is empty, or its host answered with a web page - check the address and the access"
NOT_FOUND = "Repository not found - it may have been deleted or made private"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    served = GitServer(tmp_path / "served")
    yield served
    served.close()


@pytest.fixture
def app(server: GitServer) -> str:
    """The commit of a small repository called app."""
    return commit(server.root / "app", {"package.json": b'{"dependencies": {"ms": "2.1.2"}}', "src/a.js": b"1\n"})


class Clone:
    """Clones once, and looks at the checkout before the workspace goes."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self._url, self._workspaces = url, tmp_path / "workspaces"
        self.files: dict[str, bytes] = {}
        self.context: ExtractionContext | None = None

    async def __call__(
        self,
        source: str,
        credentials: Credentials | None = None,
        *,
        step: Step | None = None,
        branch: str | None = None,
        **options: Any,
    ) -> Ran:
        project = Project(id="local", source=source, branch=branch)
        self.context = ExtractionContext(project, Options(**{"trusted": True, **options}), credentials=credentials)
        return await run_steps(
            self._url, [step or step_named("cloning"), Step("look", self._look)], self.context, self._workspaces
        )

    async def _look(self, context: ExtractionContext) -> Done:
        paths = [path for path in context.checkout.rglob("*") if path.is_file()]
        self.files = {path.relative_to(context.checkout).as_posix(): path.read_bytes() for path in paths}
        return Done()


@pytest.fixture
def clone(sqlite_url: str, tmp_path: Path) -> Clone:
    return Clone(sqlite_url, tmp_path)


async def test_a_repository_is_cloned_shallow_and_its_commit_known(server: GitServer, app: str, clone: Clone) -> None:
    """The newest commit, nothing before it, and the folder goes at the end."""
    ran = await clone(f"{server.url}/ok/app")
    assert ran.outcomes["cloning"].message == "Repository cloned successfully"
    assert clone.context is not None and clone.context.commit == app
    assert clone.files["src/a.js"] == b"1\n" and ".git/shallow" in clone.files
    assert ran.left_behind == []


@pytest.mark.case("I22", "pipeline-1")
@pytest.mark.parametrize(
    ("path", "message", "code"),
    [
        ("401/x", RECONNECT, "auth_failed"),
        ("auth/app", RECONNECT, "auth_failed"),
        ("403/x", RECONNECT, "auth_failed"),
        ("redirect/x", RECONNECT, "auth_failed"),
        ("404/x", NOT_FOUND, "repository_not_found"),
        ("ok/none", NOT_FOUND, "repository_not_found"),
        ("429/x", "127.0.0.1 rate limit reached - wait 15 minutes and retry", "rate_limited"),
        ("500/x", UNREACHABLE, "host_unreachable"),
        ("503/app-401", UNREACHABLE, "host_unreachable"),
        ("html/x", EMPTY, "repository_empty"),
    ],
)  # fmt: skip
async def test_each_answer_of_a_host_has_its_sentence(
    server: GitServer, app: str, clone: Clone, path: str, message: str, code: str
) -> None:
    """The job fails at once with the sentence of the table; nobody tries again, and no folder stays."""
    ran = await clone(f"{server.url}/{path}")
    assert (ran.last.message, ran.last.code, ran.last.permanent) == (message, code, True)
    assert (ran.job.state, ran.job.error_message, ran.left_behind) == (State.FAILED, message, [])


async def test_a_missing_branch_is_not_a_missing_repository(server: GitServer, app: str, clone: Clone) -> None:
    """git says "not found" of both."""
    ran = await clone(f"{server.url}/ok/app", branch="nope")
    assert (ran.last.message, ran.last.code) == ("Branch 'nope' not found in repository", "branch_not_found")


@pytest.mark.case("I21")
@pytest.mark.parametrize("source", ["http://127.0.0.1:1/a.git", "https://no-such-host.invalid/a.git"])
async def test_a_host_that_is_down_is_unreachable(clone: Clone, source: str) -> None:
    """No connection and no name alike; nobody tries again by himself."""
    ran = await clone(source)
    assert (ran.last.message, ran.last.permanent) == (UNREACHABLE, True)
    assert (ran.job.state, ran.job.error_message) == (State.FAILED, UNREACHABLE)


async def test_a_host_that_does_not_answer_in_time_is_unreachable(server: GitServer, clone: Clone) -> None:
    """The step's deadline ends git."""
    ran = await clone(f"{server.url}/hang/x", step=step_named("cloning", timeout=0.5))
    assert (ran.last.message, ran.last.permanent, ran.left_behind) == (UNREACHABLE, True, [])


async def test_a_repository_beyond_the_limit_is_too_large(server: GitServer, clone: Clone) -> None:
    """The limit is kept while cloning, and the folder goes."""
    commit(server.root / "big", {"a.bin": bytes(range(256)) * 4096})
    ran = await clone(f"{server.url}/ok/big", repository_gb_max=0.0001)
    assert (ran.last.message, ran.last.code) == ("Repository is too large to scan (>0.0001GB)", "repository_too_large")
    assert ran.left_behind == []


@pytest.mark.case("I23")
@pytest.mark.parametrize("case", ["disk_full_fetch", "disk_full_checkout"])
async def test_a_full_disk_is_told_and_makes_room_for_the_next_job(
    server: GitServer, app: str, clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A stand-in leaves half a clone and says what git says then."""
    text = next(stderr for name, stderr, _ in recorded() if name == case)
    half = "os.mkdir(arguments[-1]); open(arguments[-1] + '/half', 'w').write('x')"
    program(tmp_path / "programs", "git", f"{half}\nprint({text!r}, file=sys.stderr); sys.exit(128)")
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
        ran = await clone(f"{server.url}/ok/app")
    assert (ran.job.error_message, ran.left_behind) == ("Repository is too large to scan (>5GB)", [])
    assert (await clone(f"{server.url}/ok/app")).outcomes["cloning"].status == "ok"


async def test_a_token_opens_the_repository_and_stays_nowhere(server: GitServer, app: str, clone: Clone) -> None:
    """It goes by a header: the clone's settings, the log and the job do not hold it."""
    ran = await clone(f"{server.url}/auth/app", Credentials(TOKEN, USER))
    assert ran.outcomes["cloning"].status == "ok"
    assert any(server.authorizations)
    assert not any(TOKEN.encode() in content for content in clone.files.values())
    assert TOKEN not in ran.said and server.authorizations[-1] not in ran.said


async def test_links_of_a_repository_lead_nowhere(server: GitServer, clone: Clone, tmp_path: Path) -> None:
    """A link to a file of this machine is a text that names it."""
    (tmp_path / "served" / "links").mkdir(parents=True)
    (tmp_path / "served" / "links" / "requirements.txt").symlink_to("/etc/hostname")
    commit(server.root / "links", {})
    await clone(f"{server.url}/ok/links")
    assert clone.files["requirements.txt"] == b"/etc/hostname"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("https://127.0.0.1/a.git", "address_private"),
        ("https://localhost/a.git", "address_private"),
        ("https://[::1]/a.git", "address_private"),
        ("https://169.254.169.254/latest", "address_private"),
        ("http://github.com/a/b", "address_invalid"),
        ("ext::sh -c true://", "address_invalid"),
        ("file:///etc", "address_invalid"),
        ("https://user:secret@github.com/a/b", "address_invalid"),
        ("/etc", "address_invalid"),
    ],
)  # fmt: skip
async def test_strangers_reach_neither_this_machine_nor_its_network(clone: Clone, source: str, code: str) -> None:
    """Only whoever sits at the machine, or an allow-list, opens private addresses; other protocols stay shut."""
    ran = await clone(source, trusted=False)
    assert (ran.last.code, ran.last.permanent) == (code, True)


async def test_a_folder_is_read_where_it_is_and_a_branch_of_it_is_cloned(clone: Clone, tmp_path: Path) -> None:
    """What is not committed counts, unless a branch is named."""
    commit(tmp_path / "mine", {"a.txt": b"committed"}, branch="trunk")
    (tmp_path / "mine" / "b.txt").write_bytes(b"not yet")
    ran = await clone(str(tmp_path / "mine"))
    assert ran.outcomes["cloning"].message == "Folder opened" and "b.txt" in clone.files
    await clone(str(tmp_path / "mine"), branch="trunk")
    assert "a.txt" in clone.files and "b.txt" not in clone.files


CODES = {
    "branch_not_found": "branch_not_found",
    "repository_not_found": "repository_not_found",
    "auth_failed": "auth_failed",
    "access_denied": "auth_failed",
    "rate_limited": "rate_limited",
    "provider_unavailable": "host_unreachable",
    "network": "host_unreachable",
    "tls": "host_untrusted",
    "disk_full": "repository_too_large",
    "too_large": "repository_too_large",
    "bad_url": "address_invalid",
}


def recorded() -> Iterator[tuple[str, str, str]]:
    """Case, what git printed, and the kind of failure."""
    with open(FIXTURES / "git-clone-errors.tsv", encoding="utf-8") as file:
        for case, exit_code, stderr, kind in list(csv.reader(file, delimiter="\t"))[2:]:
            if exit_code == "128" and kind in CODES:
                yield case, stderr.replace("~", "\n"), CODES[kind]


@pytest.mark.parametrize(("case", "stderr", "code"), list(recorded()))
def test_everything_that_git_was_seen_to_print_is_recognised(case: str, stderr: str, code: str) -> None:
    """As one of the failures of the table, never as another."""
    result = ToolResult("git", 128, None, False, 1.0, 1.0, "", stderr)
    outcome = step_named("cloning", failures=FAILURES).judge(ToolFailed(result), {})
    assert (case, outcome.code) == (case, code)
